//! Output that goes on when its reader has closed the pipe (`plumbline list | head -1`): in this crate, `print!`,
//! `println!` and `eprintln!` are these, as those of std panic then.

use std::{
    fmt,
    io::{self, Write},
    sync::atomic::{AtomicBool, Ordering},
};

macro_rules! print {
    ($($text:tt)*) => {
        $crate::output::out(format_args!($($text)*))
    };
}

macro_rules! println {
    () => {
        $crate::output::out(format_args!("\n"))
    };
    ($($text:tt)*) => {
        $crate::output::out(format_args!("{}\n", format_args!($($text)*)))
    };
}

macro_rules! eprintln {
    () => {
        $crate::output::err(format_args!("\n"))
    };
    ($($text:tt)*) => {
        $crate::output::err(format_args!("{}\n", format_args!($($text)*)))
    };
}

/// Whether an error of stdout was shown.
static SHOWN: AtomicBool = AtomicBool::new(false);

/// Writes to stdout. Any other error than a closed pipe is shown once, such as a full disk.
pub(crate) fn out(text: fmt::Arguments<'_>) {
    let mut stdout = io::stdout().lock();
    if let Err(error) = stdout.write_fmt(text).and_then(|()| stdout.flush())
        && error.kind() != io::ErrorKind::BrokenPipe
        && !SHOWN.swap(true, Ordering::Relaxed)
    {
        err(format_args!("plumbline: failed to write to stdout: {error}\n"));
    }
}

/// Writes to stderr, where nothing can be said of an error.
pub(crate) fn err(text: fmt::Arguments<'_>) {
    drop(io::stderr().lock().write_fmt(text));
}
