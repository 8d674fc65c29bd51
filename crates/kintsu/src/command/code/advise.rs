//! `kintsu code advise`: which code to take, and why.

use std::process::ExitCode;

use kintsu_analysis::{Advice, Answer, Requirements, advise};
use kintsu_plan::{blocks_by_rack, even_cluster};

use super::reliability::years;
use crate::units::human;
use crate::{cli, output, progress};

/// Runs `kintsu code advise`. The exit code tells whether anything fits.
pub fn run(args: &cli::Advise, as_json: bool) -> anyhow::Result<ExitCode> {
    let racks = args.racks.unwrap_or(args.nodes);
    let requirements = Requirements {
        environment: args.failures.environment(args.nodes)?,
        racks,
        tolerate: args.tolerate,
        max_overhead: args.overhead,
        objective: args.objective.into(),
        survive_rack: args.survive_rack,
        widest: args.widest,
    };
    let topology = even_cluster(args.nodes, racks);
    let bar = progress::count("codes");
    let advice = advise(&requirements, &|code| blocks_by_rack(code, &topology), |done, total| {
        bar.set_length(total as u64);
        bar.set_position(done as u64);
    });
    progress::clear();
    let advice = advice?;
    if as_json {
        output::json(&serde_json::json!({ "requirements": requirements, "advice": advice }))?;
    } else if advice.answers.is_empty() {
        print_relaxations(&advice)?;
    } else {
        print(&advice)?;
    }
    Ok(if advice.answers.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn print(advice: &Advice) -> anyhow::Result<()> {
    let (best, others) = advice.answers.split_first().expect("there is an answer");
    output::line(&format!("Take {}", best.code))?;
    best.reasons.iter().try_for_each(|reason| output::line(&format!("  + {reason}")))?;
    best.caveats.iter().try_for_each(|caveat| output::line(&format!("  - {caveat}")))?;
    output::line(&format!("\n{}", table(&advice.answers)))?;
    if !others.is_empty() {
        output::line("\nThe best codes of other families, compared with the first:")?;
    }
    for other in others {
        output::line(&format!("  {}: {}", other.code, other.reasons.join("; ")))?;
        other.caveats.iter().try_for_each(|caveat| output::line(&format!("    - {caveat}")))?;
    }
    if !advice.refused.is_empty() {
        output::line("\nFamilies without a code that fits:")?;
    }
    advice.refused.iter().try_for_each(|no| output::line(&format!("  {}: {}", no.family, no.reason)))?;
    output::line(
        "\nCosts in blocks read: DEGRADED for a read of a lost data block, NRC for each data block of a lost node, WORST for\n\
         the most expensive single repair. MTTDL of a stripe: nodes alone, then with racks. SMALLEST: the cell, and the object\n\
         below which OVERHEAD does not hold.",
    )
}

fn table(answers: &[Answer]) -> comfy_table::Table {
    let mut table = output::table([
        "CODE",
        "OVERHEAD",
        "D",
        "DEGRADED",
        "NRC",
        "WORST",
        "W",
        "ANY RACK",
        "MTTDL",
        "WITH RACKS",
        "SMALLEST",
    ]);
    for answer in answers {
        let racks = answer.reliability.racks.as_ref();
        let any_rack = match racks {
            Some(racks) if racks.survives_any_rack => "survived",
            _ => "LOST",
        };
        table.add_row([
            answer.code.clone(),
            answer.overhead.decimal(),
            answer.d.to_string(),
            answer.degraded.decimal(),
            answer.nrc.decimal(),
            answer.worst_repair.decimal(),
            answer.w.to_string(),
            any_rack.to_owned(),
            years(&answer.reliability.stripe),
            racks.map_or("-".to_owned(), |racks| years(&racks.stripe)),
            format!("{}, {}", human(answer.min_cell_bytes), human(answer.min_object_bytes)),
        ]);
    }
    table
}

fn print_relaxations(advice: &Advice) -> anyhow::Result<()> {
    output::line("Nothing fits: no code at all can meet these requirements together.")?;
    if advice.relaxations.is_empty() {
        return output::line("No single change is enough; relax two or more.");
    }
    output::line("Any one of these changes is enough:")?;
    let mut changes = advice.relaxations.iter();
    changes.try_for_each(|relaxed| output::line(&format!("  {}: then {} fits", relaxed.change, relaxed.code)))
}
