//! Chromium without a window, by its DevTools protocol over two pipes.

use std::{
    collections::VecDeque,
    env,
    fs::{File, OpenOptions},
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::{Duration, Instant},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use nix::{sys::stat::Mode, unistd::mkfifo};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Names under which it is installed.
const PROGRAMS: [&str; 4] = [
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
];
/// Limit of one command, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);
/// Heights of the window: a screen, and a phone.
const HEIGHTS: [u32; 2] = [1100, 844];

/// A running browser.
pub(crate) struct Browser {
    process: Child,
    commands: File,
    answers: Receiver<Value>,
    events: VecDeque<Value>,
    number: u64,
    /// Profile and pipes.
    _folder: TempDir,
}

/// An open page.
pub(crate) struct Page<'a> {
    browser: &'a mut Browser,
    session: String,
    url: String,
}

impl Browser {
    /// Starts it. Without Chromium on the PATH, the test is recorded as skipped.
    pub(crate) fn start_or_skip() -> Option<Self> {
        let path = env::var_os("PATH").unwrap_or_default();
        let found = PROGRAMS
            .iter()
            .find(|program| env::split_paths(&path).any(|folder| folder.join(program).is_file()));
        let Some(program) = found else {
            testing::skip(
                &testing::current(),
                &format!("there is none of {} on the PATH", PROGRAMS.join(", ")),
            );
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        let [commands, answers] = ["commands", "answers"].map(|name| {
            let path = folder.path().join(name);
            mkfifo(&path, Mode::S_IRWXU).unwrap();
            path
        });
        // The protocol is on descriptors 3 and 4. The sandbox needs rights that containers and root do not have; the pages
        // are the project's own.
        let process = Command::new("sh")
            .args(["-c", r#"exec "$@" 3<"$COMMANDS" 4>"$ANSWERS""#, "sh", program])
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--hide-scrollbars",
                "--no-first-run",
            ])
            .args([
                "--remote-debugging-pipe",
                "--disable-dev-shm-usage",
                "--disable-background-networking",
            ])
            .arg(format!(
                "--user-data-dir={}",
                folder.path().join("profile").display()
            ))
            .env("COMMANDS", &commands)
            .env("ANSWERS", &answers)
            .env("HOME", folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // Opened for both directions, neither open waits for the other end.
        let open = |path: &Path| OpenOptions::new().read(true).write(true).open(path).unwrap();
        let (sender, receiver) = channel();
        let pipe = BufReader::new(open(&answers));
        thread::spawn(move || {
            for message in pipe.split(0) {
                let Ok(message) = message else { return };
                let message = serde_json::from_slice(&message).expect("a message of the protocol is JSON");
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        Some(Self {
            process,
            commands: open(&commands),
            answers: receiver,
            events: VecDeque::new(),
            number: 0,
            _folder: folder,
        })
    }

    /// Opens a file in a window of this width, and waits until it is loaded.
    pub(crate) fn open(&mut self, file: &Path, width: u32) -> Page<'_> {
        self.events.clear();
        let target = self.call(None, "Target.createTarget", json!({"url": "about:blank"}));
        let target = json!({"targetId": target["targetId"], "flatten": true});
        let session = self.call(None, "Target.attachToTarget", target)["sessionId"].clone();
        let mut page = Page {
            browser: self,
            session: session.as_str().expect("a session").to_owned(),
            url: format!("file://{}", file.display()),
        };
        for domain in ["Page", "Runtime", "Network", "Log"] {
            page.call(&format!("{domain}.enable"), json!({}));
        }
        let is_phone = width < 500;
        let height = HEIGHTS[usize::from(is_phone)];
        let window = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": is_phone});
        page.call("Emulation.setDeviceMetricsOverride", window);
        let url = page.url.clone();
        page.call("Page.navigate", json!({"url": &url}));
        // The answer comes when the page has begun to replace the empty one.
        let begun = Instant::now();
        while page.evaluate("document.readyState") != "complete" {
            assert!(
                begun.elapsed() < testing::patience::scaled(PATIENCE),
                "{url} is not loaded"
            );
            thread::sleep(Duration::from_millis(20));
        }
        page
    }

    fn call(&mut self, session: Option<&str>, method: &str, parameters: Value) -> Value {
        self.number += 1;
        let mut message = json!({"id": self.number, "method": method});
        message["params"] = parameters;
        if let Some(session) = session {
            message["sessionId"] = session.into();
        }
        let text = format!("{message}\0");
        self.commands.write_all(text.as_bytes()).unwrap();
        loop {
            let answer = self.next(method);
            if answer["id"] == self.number {
                assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
                return answer["result"].clone();
            }
            self.events.push_back(answer);
        }
    }

    fn next(&mut self, waiting_for: &str) -> Value {
        let next = self.answers.recv_timeout(testing::patience::scaled(PATIENCE));
        next.unwrap_or_else(|error| panic!("expected {waiting_for} from the browser: {error}"))
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

impl Page<'_> {
    fn call(&mut self, method: &str, parameters: Value) -> Value {
        let session = self.session.clone();
        self.browser.call(Some(&session), method, parameters)
    }

    /// The value of an expression.
    pub(crate) fn evaluate(&mut self, expression: &str) -> Value {
        let answer = self.call(
            "Runtime.evaluate",
            json!({"expression": expression, "returnByValue": true}),
        );
        assert!(
            answer["exceptionDetails"].is_null(),
            "{expression}: {}",
            answer["exceptionDetails"]
        );
        answer["result"]["value"].clone()
    }

    /// Shows the page as on `light` or `dark` screens, or in `print`.
    pub(crate) fn emulate(&mut self, medium: &str) {
        let (medium, scheme) = match medium {
            "print" => ("print", "light"),
            scheme => ("screen", scheme),
        };
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.call(
            "Emulation.setEmulatedMedia",
            json!({"media": medium, "features": features}),
        );
    }

    /// The window as PNG.
    pub(crate) fn screenshot(&mut self) -> Vec<u8> {
        let answer = self.call("Page.captureScreenshot", json!({"format": "png"}));
        STANDARD
            .decode(answer["data"].as_str().expect("a picture"))
            .unwrap()
    }

    /// Addresses that the page asked for, but its own.
    pub(crate) fn requests(&mut self) -> Vec<String> {
        let events = self.browser.events.iter();
        let sent = events.filter(|event| {
            event["method"] == "Network.requestWillBeSent" && event["sessionId"] == self.session.as_str()
        });
        let urls = sent.filter_map(|event| event["params"]["request"]["url"].as_str());
        urls.filter(|url| *url != self.url && !url.starts_with("data:"))
            .map(str::to_owned)
            .collect()
    }

    /// Exceptions of scripts, and what the browser warns of.
    pub(crate) fn errors(&mut self) -> Vec<String> {
        let events = self.browser.events.iter();
        let errors = events.filter(|event| {
            let method = event["method"].as_str().unwrap_or_default();
            event["sessionId"] == self.session.as_str()
                && ["Runtime.exceptionThrown", "Log.entryAdded"].contains(&method)
        });
        errors.map(|event| event["params"].to_string()).collect()
    }
}
