//! The arguments of `kintsu lab run` and `kintsu lab page`.

use std::path::PathBuf;

use clap::Args;

/// `kintsu lab run`.
#[derive(Debug, Args)]
pub struct LabRun {
    /// Experiments or groups of them.
    pub experiments: Vec<String>,
    /// Say which there are.
    #[arg(long)]
    pub list: bool,
    /// Repetitions of every point [default: 5, with --quick 2].
    #[arg(long, value_parser = at_least_one)]
    pub runs: Option<usize>,
    /// Blocks of 16 MiB at most and fewer points: to see that everything works.
    #[arg(long)]
    pub quick: bool,
    /// The rates of links over those of the paper [default: as each experiment says].
    #[arg(long, value_parser = positive)]
    pub scale: Option<f64>,
    /// A folder for the results, a JSON and an SVG for each experiment; it is made if it is not there.
    #[arg(long)]
    pub out: Option<PathBuf>,
    /// A folder where to make one for the data, which is removed at the end [default: in memory].
    #[arg(long)]
    pub dir: Option<PathBuf>,
}

/// `kintsu lab page`.
#[derive(Debug, Args)]
pub struct LabPage {
    /// The folder of results, see `kintsu lab run --out`.
    pub results: PathBuf,
    /// The page.
    #[arg(long, default_value = "docs/repair-experiments.md")]
    pub page: PathBuf,
    /// Where the page finds the charts.
    #[arg(long, default_value = "repair-experiments")]
    pub charts: String,
}

fn at_least_one(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|&number: &usize| number > 0);
    number.ok_or_else(|| format!("expected a number above zero, got {text:?}"))
}

fn positive(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| format!("expected a number above zero, got {text:?}"))
}
