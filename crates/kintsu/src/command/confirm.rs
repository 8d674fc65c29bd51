//! What cannot be taken back is asked first: on a terminal by a question, elsewhere by `--yes`.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

/// Returns when the user means it: `said_yes` on the command line, or types `yes` after the question.
///
/// # Errors
/// When there is no terminal to ask on, or the answer is another.
pub async fn confirm(question: String, said_yes: bool) -> anyhow::Result<()> {
    if said_yes {
        return Ok(());
    }
    if !io::stdin().is_terminal() {
        anyhow::bail!(
            "{question} Expected --yes, since standard input is no terminal to ask on; nothing was done"
        );
    }
    // The answer may take long, or be Ctrl-C, which others wait for.
    tokio::task::spawn_blocking(move || {
        let mut stderr = io::stderr().lock();
        write!(stderr, "{question} Type yes: ").and_then(|()| stderr.flush())?;
        let mut answer = String::new();
        io::stdin().lock().read_line(&mut answer)?;
        let answer = answer.trim();
        anyhow::ensure!(answer == "yes", "nothing was done: expected the answer \"yes\", got {answer:?}");
        Ok(())
    })
    .await?
}
