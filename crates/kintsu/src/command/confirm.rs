//! Confirmation of commands that cannot be undone: a question on a terminal, `--yes` elsewhere.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

/// Returns if the user confirms: with `said_yes` on the command line, or by typing `yes` after the question.
///
/// # Errors
/// There is no terminal, or the answer is not `yes`.
pub async fn confirm(question: String, said_yes: bool) -> anyhow::Result<()> {
    if said_yes {
        return Ok(());
    }
    if !io::stdin().is_terminal() {
        anyhow::bail!(
            "{question} Expected --yes, because standard input is not a terminal; nothing was done"
        );
    }
    // On a blocking thread: the answer may take long, and other tasks must still see Ctrl-C.
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
