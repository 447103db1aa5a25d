//! The first process of a virtual machine of `cargo xtask kernels`: prepares the machine, runs the programs of its plan
//! one after another, sends events to the second serial port, and powers off. For nothing else: it kills all other
//! processes between two programs.

mod place;
mod step;

use std::{
    fs::{self, File, OpenOptions},
    io::Write as _,
    sync::{Mutex, PoisonError},
};

use anyhow::{Context as _, bail};
use guest::{Event, PLAN, PORT, Plan};
use nix::{
    sys::{
        reboot::{RebootMode, reboot},
        termios::{OutputFlags, SetArg, tcdrain, tcgetattr, tcsetattr},
        utsname::uname,
    },
    unistd::Pid,
};

/// The port for events.
struct Port(Mutex<File>);

impl Port {
    fn open() -> anyhow::Result<Self> {
        let file = OpenOptions::new()
            .write(true)
            .open(PORT)
            .with_context(|| format!("failed to open {PORT}"))?;
        let mut settings = tcgetattr(&file).with_context(|| format!("{PORT} is no serial port"))?;
        settings.output_flags.remove(OutputFlags::OPOST);
        tcsetattr(&file, SetArg::TCSANOW, &settings).with_context(|| format!("failed to set {PORT} up"))?;
        Ok(Self(Mutex::new(file)))
    }

    /// Sends an event. An error can't be reported: the reader finds that the last event is missing.
    fn send(&self, event: &Event) {
        if let Ok(mut line) = serde_json::to_vec(event) {
            line.push(b'\n');
            let _ = self
                .0
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .write_all(&line);
        }
    }

    /// Waits until the port has sent everything.
    fn drain(&self) {
        let _ = tcdrain(&*self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

fn main() -> anyhow::Result<()> {
    if Pid::this().as_raw() != 1 {
        bail!("this is the first process of a virtual machine, which `cargo xtask kernels` starts");
    }
    // Errors before the port is open go to the kernel's console: this process must not end.
    place::mount_all()?;
    place::loopback_up()?;
    let port = Port::open()?;
    match run(&port) {
        Ok(()) => port.send(&Event::Over),
        Err(error) => port.send(&Event::Failed {
            why: format!("{error:#}"),
        }),
    }
    port.drain();
    reboot(RebootMode::RB_POWER_OFF).context("failed to power off")?;
    Ok(())
}

fn run(port: &Port) -> anyhow::Result<()> {
    let kernel = uname().context("failed to ask for the kernel's release")?;
    port.send(&Event::Booted {
        kernel: kernel.release().to_string_lossy().into_owned(),
    });
    let plan = fs::read(PLAN).with_context(|| format!("failed to read {PLAN}"))?;
    let plan: Plan = serde_json::from_slice(&plan).with_context(|| format!("{PLAN} is no plan"))?;
    for module in &plan.modules {
        if let Err(error) = place::load(module) {
            port.send(&Event::ModuleRefused {
                module: module.clone(),
                why: format!("{error:#}"),
            });
        }
    }
    for step in &plan.steps {
        step::run(step, &|event| port.send(&event));
    }
    Ok(())
}
