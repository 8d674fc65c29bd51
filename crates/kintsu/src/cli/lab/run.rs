//! The arguments of `kintsu lab run` and `kintsu lab page`.

use std::path::PathBuf;

use clap::Args;

/// `kintsu lab run`.
#[derive(Debug, Args)]
pub struct LabRun {
    /// Experiments or groups of them.
    pub experiments: Vec<String>,
    /// List the experiments.
    #[arg(long)]
    pub list: bool,
    /// Repetitions of every point [default: 5, with --quick 2]; a few points have limits of their own.
    #[arg(long, value_parser = at_least_one)]
    pub runs: Option<usize>,
    /// Use blocks of at most 16 MiB and fewer points, to check that everything works.
    #[arg(long)]
    pub quick: bool,
    /// Factor between our rates of links and the paper's [default: as each experiment defines].
    #[arg(long, value_parser = positive)]
    pub scale: Option<f64>,
    /// After this many minutes, show and write what was measured until then, and end with an error. An interrupt does
    /// the same.
    #[arg(long, value_parser = positive)]
    pub minutes: Option<f64>,
    /// A folder for the results, a JSON and an SVG file for each experiment; created if absent.
    #[arg(long)]
    pub out: Option<PathBuf>,
    /// Go on where an earlier run with this --out was ended: what this build has measured there whole, on this machine
    /// and with these settings, is shown and not measured again.
    #[arg(long, requires = "out")]
    pub resume: bool,
    /// A page whose places `<!-- results NAME -->` get the results at the end; their drawings go into the folder beside it that
    /// has its name.
    #[arg(long, value_name = "FILE")]
    pub page: Option<PathBuf>,
    /// A folder in which a folder for the data is created, and removed at the end [default: in memory].
    #[arg(long)]
    pub dir: Option<PathBuf>,
}

/// `kintsu lab page`.
#[derive(Debug, Args)]
pub struct LabPage {
    /// The folder of results; see `kintsu lab run --out`.
    pub results: PathBuf,
    /// The page.
    #[arg(long, default_value = "docs/repair-experiments.md")]
    pub page: PathBuf,
    /// The folder of the charts, relative to the page.
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
