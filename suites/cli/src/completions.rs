//! `plumbline completions`.

use std::process::ExitCode;

use clap::CommandFactory as _;
use clap_complete::{Shell, generate};

/// Print a script that completes commands and options in a shell
#[derive(Debug, clap::Args)]
#[command(after_help = "\
  plumbline completions bash > ~/.local/share/bash-completion/completions/plumbline
  plumbline completions zsh > \"${fpath[1]}/_plumbline\"
  plumbline completions fish > ~/.config/fish/completions/plumbline.fish")]
pub(crate) struct Arguments {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

pub(crate) fn completions(arguments: &Arguments) -> ExitCode {
    print!("{}", script(arguments.shell));
    ExitCode::SUCCESS
}

fn script(shell: Shell) -> String {
    let mut script = Vec::new();
    generate(shell, &mut crate::Arguments::command(), "plumbline", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

#[cfg(test)]
mod tests {
    use std::{
        io::Write as _,
        process::{Command, Stdio},
    };

    use super::*;

    #[test]
    fn every_shell_gets_the_commands_and_none_that_is_hidden() {
        for shell in [
            Shell::Bash,
            Shell::Zsh,
            Shell::Fish,
            Shell::Elvish,
            Shell::PowerShell,
        ] {
            let script = script(shell);
            for part in ["cleanup", "dry-run", "kubeconfig"] {
                assert!(script.contains(part), "{shell}: {part}");
            }
        }
    }

    #[test]
    fn bash_completes_an_option_of_run() {
        let ask = "COMP_WORDS=(plumbline run --dry); COMP_CWORD=2; _plumbline plumbline --dry run; echo \"${COMPREPLY[*]}\"";
        let mut bash = Command::new("bash")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let text = format!("{}\n{ask}\n", script(Shell::Bash));
        bash.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let output = bash.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "--dry-run");
    }
}
