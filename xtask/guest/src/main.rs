//! The first process of a virtual machine of `cargo xtask kernels`: prepares the machine, runs the programs of its plan
//! one after another, tells what happens on the second serial port, and powers off. Not for anything else: as the first
//! process it ends all others between two programs.

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

/// Where events go.
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

    /// Tells an event. Nobody can be told that it can't be: who listens sees that the end is missing.
    fn tell(&self, event: &Event) {
        if let Ok(mut line) = serde_json::to_vec(event) {
            line.push(b'\n');
            let _ = self
                .0
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .write_all(&line);
        }
    }

    /// Waits until all of it has been sent.
    fn drain(&self) {
        let _ = tcdrain(&*self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

fn main() -> anyhow::Result<()> {
    if Pid::this().as_raw() != 1 {
        bail!("this is the first process of a virtual machine, which `cargo xtask kernels` starts");
    }
    // What fails before there is a port is told by the kernel's console: this process must not end.
    place::mount_all()?;
    place::loopback_up()?;
    let port = Port::open()?;
    match run(&port) {
        Ok(()) => port.tell(&Event::Over),
        Err(error) => port.tell(&Event::Failed {
            why: format!("{error:#}"),
        }),
    }
    port.drain();
    reboot(RebootMode::RB_POWER_OFF).context("failed to power off")?;
    Ok(())
}

fn run(port: &Port) -> anyhow::Result<()> {
    let kernel = uname().context("failed to ask for the kernel's release")?;
    port.tell(&Event::Booted {
        kernel: kernel.release().to_string_lossy().into_owned(),
    });
    let plan = fs::read(PLAN).with_context(|| format!("failed to read {PLAN}"))?;
    let plan: Plan = serde_json::from_slice(&plan).with_context(|| format!("{PLAN} is no plan"))?;
    for module in &plan.modules {
        if let Err(error) = place::load(module) {
            port.tell(&Event::ModuleRefused {
                module: module.clone(),
                why: format!("{error:#}"),
            });
        }
    }
    for step in &plan.steps {
        step::run(step, &|event| port.tell(&event));
    }
    Ok(())
}
