//! `kintsu repack`.

use std::process::ExitCode;

use kintsu_client::{RepackOptions, RepackReport};

use super::Context;
use crate::units::human;
use crate::{cli, output, progress};

/// Gathers small objects into packs. Fails if some were to move and did not.
pub async fn run(args: cli::Repack, context: &Context) -> anyhow::Result<ExitCode> {
    let options = RepackOptions { older_than: args.older_than, least: args.least.into() };
    let bar = progress::steps("looking for small objects that lie alone");
    let show = |done: &RepackReport| {
        bar.set_message(format!("{} objects moved, {} packs written", done.objects, done.packs));
    };
    let report = context.client.repack(options, show).await?;
    progress::clear();
    if context.json {
        output::json(&report)?;
    } else {
        output::line(&text(&report))?;
        report.failed.iter().for_each(|why| eprintln!("kintsu: not moved: {why}"));
    }
    Ok(if report.left == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What was done, for people.
fn text(report: &RepackReport) -> String {
    if report.packs == 0 && report.left == 0 {
        return match report.loose {
            0 => "no small objects to gather".into(),
            loose => format!("{loose} stripes of small objects stay as they are: too few for a pack"),
        };
    }
    let left = match report.left {
        0 => String::new(),
        left => format!("; {left} stayed where they were"),
    };
    format!(
        "{} objects ({}) of {} stripes moved into {} packs; {} of objects that had gone are free{left}",
        report.objects,
        human(report.bytes),
        report.stripes_freed,
        report.packs,
        human(report.bytes_freed),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_says_what_moved_and_what_stayed() {
        let mut report = RepackReport::default();
        assert_eq!(text(&report), "no small objects to gather");
        report.loose = 3;
        assert!(text(&report).starts_with("3 stripes of small objects stay"));
        (report.packs, report.objects, report.bytes, report.stripes_freed) = (1, 20, 20_480, 20);
        assert!(
            text(&report).starts_with("20 objects (") && !text(&report).contains("stayed"),
            "{}",
            text(&report)
        );
        report.left = 2;
        assert!(text(&report).ends_with("; 2 stayed where they were"));
    }
}
