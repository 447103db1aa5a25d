//! Commands in places of a cluster that change what is there, as a fault does.

use std::time::Duration;

use cluster::Place;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::Child,
};

use crate::{context::Context, verdict::Halt};

/// A shell that waits in a place, so that its network has a name. It ends with this.
#[derive(Debug)]
#[must_use = "it ends when this is dropped"]
pub struct Waiting {
    /// Its process id, as processes on nodes of the same machine see it.
    pub pid: u32,
    _child: Child,
}

impl Waiting {
    /// Starts a shell in a place that only waits.
    ///
    /// # Errors
    /// If it does not print its process id.
    pub async fn start(cx: &Context, place: &Place) -> Result<Self, Halt> {
        let argv = ["sh", "-c", "echo $$; exec cat"].map(str::to_owned);
        let mut child = cx.cluster().exec(place, &argv).await?;
        child.stderr = None;
        let failed = || Halt::Harness(format!("a shell {place} does not print its process id"));
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().ok_or_else(failed)?);
        let read = tokio::time::timeout(cx.limits().endpoints, out.read_line(&mut line)).await;
        read.map_err(|_| failed())?.map_err(|_| failed())?;
        let pid = line.trim().parse().map_err(|_| failed())?;
        Ok(Self { pid, _child: child })
    }
}

/// A change of a place that lasts. The place itself takes it back when this is dropped, or when its time is over.
#[derive(Debug)]
#[must_use = "the change is taken back when this is dropped"]
pub struct Lasting {
    what: String,
    child: Child,
}

impl Lasting {
    /// Runs a shell's commands in a place, and others when this ends, or after so long at the latest; the others have no
    /// single quotes. The first have ended when this returns; they are noted as a fault.
    ///
    /// # Errors
    /// One of the first fails: the last one's words.
    pub async fn begin(
        cx: &Context,
        place: &Place,
        [begin, end]: [&str; 2],
        longest: Duration,
    ) -> Result<Self, Halt> {
        cx.fault(&format!("{place}: {begin}"));
        let argv = ["sh", "-ec", &lasting(begin, end, longest)].map(str::to_owned);
        let mut child = cx.cluster().exec(place, &argv).await?;
        let what = format!("{begin:?} {place}");
        let failed = |why: &str| Halt::Harness(format!("failed to run {what}: {why}"));
        let out = child.stdout.take().ok_or_else(|| failed("it has no output"))?;
        let mut line = String::new();
        let mut out = BufReader::new(out);
        let read = tokio::time::timeout(cx.limits().endpoints, out.read_line(&mut line)).await;
        if read.is_ok_and(|read| read.is_ok()) && line.trim() == BEGUN {
            return Ok(Self { what, child });
        }
        let mut said = String::new();
        if let Some(errors) = child.stderr.take() {
            // What can't be read explains nothing.
            let _ = BufReader::new(errors).read_line(&mut said).await;
        }
        Err(failed(said.trim()))
    }

    /// Ends it. Its last commands have ended when this returns.
    ///
    /// # Errors
    /// One of them fails, or its time was over before.
    pub async fn end(mut self, cx: &Context) -> Result<(), Halt> {
        let failed = |why: String| Halt::Harness(format!("failed to take back {}: {why}", self.what));
        if let Ok(Some(status)) = self.child.try_wait() {
            return Err(failed(format!("its time was over before ({status})")));
        }
        drop(self.child.stdin.take());
        let ended = tokio::time::timeout(cx.limits().endpoints, self.child.wait()).await;
        let status = ended.map_err(|_| failed("it does not end".to_owned()))?;
        let status = status.map_err(|error| failed(error.to_string()))?;
        if !status.success() {
            return Err(failed(status.to_string()));
        }
        cx.fault(&format!("over: {}", self.what));
        Ok(())
    }
}

/// What a shell prints when its first commands have ended.
const BEGUN: &str = "begun";

/// The commands of a shell that ends with its stdin. What takes the change back is a process of its own: it outlives
/// the shell.
fn lasting(begin: &str, end: &str, longest: Duration) -> String {
    let longest = longest.as_secs().max(1);
    format!(
        "trap '{end}' EXIT\n{begin}\ntrap - EXIT\nexec 3<&0\n\
         ( timeout {longest} cat <&3 >/dev/null || true; {end} ) >/dev/null &\necho {BEGUN}\nwait $!"
    )
}

/// Runs a shell's commands in a place, to their end, and notes them as a fault.
///
/// # Errors
/// One of them fails: the last one's words.
pub async fn change(cx: &Context, place: &Place, commands: &str) -> Result<(), Halt> {
    cx.fault(&format!("{place}: {commands}"));
    output(cx, place, commands).await.map(drop)
}

/// Runs a shell's commands in a place, which change nothing, to their end. Returns what they print.
///
/// # Errors
/// One of them fails: the last one's words.
pub async fn output(cx: &Context, place: &Place, commands: &str) -> Result<String, Halt> {
    let argv = ["sh", "-ec", commands].map(str::to_owned);
    let child = cx.cluster().exec(place, &argv).await?;
    let failed = |why: String| Halt::Harness(format!("failed to run {commands:?} {place}: {why}"));
    let output = tokio::time::timeout(cx.limits().endpoints, child.wait_with_output()).await;
    let output = output.map_err(|_| failed("it does not end".to_owned()))?;
    let output = output.map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        io::{BufRead as _, BufReader},
        process::{Command, Stdio},
        thread,
    };

    use super::*;

    #[test]
    fn what_lasts_is_taken_back_when_its_end_closes_even_if_its_shell_was_killed() {
        for is_killed in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("there");
            let [begin, end] = ["touch", "rm"].map(|program| format!("{program} {}", file.display()));
            let mut child = Command::new("sh")
                .args(["-ec", &lasting(&begin, &end, Duration::from_secs(60))])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut line = String::new();
            let mut out = BufReader::new(child.stdout.take().unwrap());
            out.read_line(&mut line).unwrap();
            assert_eq!((line.trim(), file.exists()), (BEGUN, true));
            if is_killed {
                child.kill().unwrap();
            }
            drop(child.stdin.take());
            child.wait().unwrap();
            let mut looks = 0;
            while fs::exists(&file).unwrap() && looks < 100 {
                looks += 1;
                thread::sleep(Duration::from_millis(50));
            }
            assert!(!file.exists(), "killed: {is_killed}");
        }
    }

    #[test]
    fn what_fails_halfway_is_taken_back() {
        let script = lasting("true; false", "echo back", Duration::from_secs(60));
        let done = Command::new("sh")
            .args(["-ec", &script])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&done.stdout).trim(), "back");
        assert!(!done.status.success());
    }

    #[test]
    fn what_lasts_is_taken_back_when_its_time_is_over() {
        let script = lasting("true", "echo over >&2", Duration::from_secs(1));
        let mut child = Command::new("sh")
            .args(["-ec", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        let stderr = child.stderr.take().unwrap();
        BufReader::new(stderr).read_line(&mut said).unwrap();
        assert_eq!(said.trim(), "over");
        child.wait().unwrap();
    }
}
