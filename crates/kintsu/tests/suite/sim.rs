//! `kintsu sim` and `kintsu sim repair`, as a shell sees them. No cluster is needed.

#![allow(clippy::unwrap_used, reason = "what fails here is the test's failure")]

use std::process::{Command, Output};

use serde_json::Value;

/// A cluster and blocks small enough to be simulated at once.
const SMALL: &str =
    "--nodes 24 --racks 6 --code rs:n=9,k=6 --block 4MiB --slice 64KiB --rate 1Gb/s --rack-rate 4Gb/s";

fn sim(args: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kintsu")).arg("sim").args(args.split_whitespace()).output().unwrap()
}

fn text(args: &str) -> String {
    let output = sim(args);
    assert!(output.status.success(), "{args}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn json(args: &str) -> Value {
    serde_json::from_str(&text(&format!("{args} --json"))).unwrap()
}

fn seconds(rows: &Value, name: &str, method: &str) -> f64 {
    let row = rows.as_array().unwrap().iter().find(|row| row[name] == method);
    row.unwrap_or_else(|| panic!("no {method} in {rows}"))["seconds"].as_f64().unwrap()
}

#[test]
fn one_repair_takes_what_its_busiest_link_says() {
    let said = json(&format!("repair {SMALL} --method conventional,pipeline"));
    assert_eq!((said["nodes"].as_u64(), said["block_bytes"].as_u64()), (Some(24), Some(4 << 20)));
    assert_eq!(said["homes"].as_array().unwrap().iter().filter(|home| home.is_null()).count(), 1);
    let repairs = &said["repairs"];
    let block = f64::from(4 << 20) / 125e6;
    let star = seconds(repairs, "method", "conventional") / block;
    assert!((star - 6.0).abs() < 1e-6, "six blocks into one link: {star}");
    let chain = seconds(repairs, "method", "pipeline") / block;
    assert!((chain - (1.0 + 5.0 / 64.0)).abs() < 1e-6, "a block, and five slices more: {chain}");
    assert!(repairs.as_array().unwrap().iter().all(|row| row["moved_blocks"] == 6.0), "{repairs}");
}

#[test]
fn overheads_are_added_to_what_links_carry() {
    let of = |more: &str| {
        let said = json(&format!("repair {SMALL} --method conventional {more}"));
        seconds(&said["repairs"], "method", "conventional")
    };
    let plain = of("");
    assert!((of("--wire 1.5") / plain - 1.5).abs() < 1e-9);
    assert!((of("--hop-us 1000") - plain - 1e-3).abs() < 1e-9, "one hop, once");
}

#[test]
fn a_node_and_a_rack_are_recovered_and_the_bound_holds() {
    let node = format!("{SMALL} --stripes 60 --method conventional,pipeline");
    let (one, all) = (json(&node), json(&format!("{node} --fail rack --which 2")));
    assert_eq!((one["failed_nodes"].as_array().unwrap().len(), one["stripes"].as_u64()), (1, Some(60)));
    assert_eq!(all["failed_nodes"], serde_json::json!([2, 8, 14, 20]));
    for said in [&one, &all] {
        for row in said["recoveries"].as_array().unwrap() {
            let (time, bound) = (row["seconds"].as_f64().unwrap(), row["bound_seconds"].as_f64().unwrap());
            assert!(bound > 0.0 && bound <= time * (1.0 + 1e-9), "{row}");
        }
    }
    assert!(
        seconds(&all["recoveries"], "scheme", "pipeline") > seconds(&one["recoveries"], "scheme", "pipeline")
    );
    assert_eq!(one, json(&node), "the same seed, the same answer");
}

/// The picture in the README is what the command in `docs/simulator.md` draws.
#[test]
fn the_picture_of_both_repairs_can_be_made_again() {
    let docs = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let page = std::fs::read_to_string(docs.join("simulator.md")).unwrap();
    let command = page.split("```").find(|block| block.contains("--svg docs/repair-timeline.svg")).unwrap();
    let command = command.replace("\\\n", " ");
    let dir = tempfile::tempdir().unwrap();
    let drawn = dir.path().join("drawn.svg");
    let args = command.trim().strip_prefix("kintsu sim ").unwrap();
    let said = text(&args.replace("docs/repair-timeline.svg", drawn.to_str().unwrap()));
    assert!(said.contains("conventional") && said.contains("drawn into"), "{said}");
    let [kept, drawn] =
        [docs.join("repair-timeline.svg"), drawn].map(|path| std::fs::read_to_string(path).unwrap());
    assert!(kept == drawn, "docs/repair-timeline.svg is not what this draws: {command}");
    assert!(kept.contains("conventional: 3.22") && kept.contains("carries 6.00 blocks"));
    let never = dir.path().join("never.svg");
    let refused = sim(&format!("repair --nodes 20 --racks 20 --svg {}", never.display()));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("slices to draw: expected at most 256"));
}

#[test]
fn the_results_come_as_a_table_and_as_csv() {
    let repair = format!("repair {SMALL} --method pipeline");
    let table = text(&repair);
    assert!(table.contains("METHOD") && table.contains("slices of 64"), "{table}");
    for asked in [format!("{repair} --csv"), format!("{SMALL} --stripes 20 --method pipeline --csv")] {
        let csv = text(&asked);
        let lines: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
        assert!(lines.len() == 2 && lines[0].len() == lines[1].len(), "{csv}");
        assert!(lines[0][0] == "method" && lines[1][0] == "pipeline", "{csv}");
        let plain = |name: &str| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        assert!(lines[0].iter().all(|name| plain(name)) && lines[0].contains(&"bound_over_time"), "{csv}");
        assert!(lines[1][1].parse::<f64>().unwrap() > 0.0, "{csv}");
    }
}

#[test]
fn what_is_asked_wrongly_is_refused_with_what_was_expected() {
    for (args, words) in [
        ("repair --code rs:n=4", "k"),
        ("repair --code rs:n=9,k=6 --lost 9", "expected blocks below 9, got 9"),
        ("repair --method fastest", "pipeline"),
        ("repair --slice 0", "--slice: expected 1 byte or more, got 0"),
        ("repair --block 0", "--block: expected 1 byte or more, got 0"),
        ("repair --wire 0.5", "wire: expected 1 or more, got 0.5"),
        ("repair --hop-us nan", "hop_seconds: expected 0 or more, got NaN"),
        ("repair --rate fast", "expected a number and b/s"),
        ("repair --topology /no/such/file.toml", "/no/such/file.toml"),
        ("repair --csv --json", "cannot be used with"),
        ("--nodes 10 --racks 20", "--racks: expected at most 10"),
        ("--nodes 1", "2..="),
        ("--nodes 8 --racks 2 --stripes 5", "expected"),
        ("--nodes 24 --racks 6 --code rs:n=9,k=6 --stripes 5 --which 99", "expected"),
    ] {
        let output = sim(args);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(words), "{args}: {said}");
        assert!(output.stdout.is_empty(), "{args}");
    }
}

#[test]
fn a_path_of_sub_blocks_reads_as_little_as_a_star_and_loads_each_link_with_a_block_at_most() {
    let codes =
        "less:n=14,k=10,alpha=4 hitchhiker-xor:n=14,k=10 butterfly:n=6,k=4 miser:n=8,k=4 clay:n=6,k=4,d=5";
    let said = json(&format!("codes --nodes 24 --racks 1 --rate 1Gb/s --block 2MiB --codes {codes}"));
    let rows = said["repairs"].as_array().unwrap();
    assert_eq!(rows.len(), 5 * 4, "{rows:?}");
    for of in rows.chunks(4) {
        let [star, _, path, auto] = of else { panic!("{of:?}") };
        let value = |row: &Value, what: &str| row[what].as_f64().unwrap();
        assert_eq!((&star["method"], &path["method"]), (&"conventional".into(), &"pipeline".into()));
        assert!((value(star, "read") - value(path, "read")).abs() < 1e-9, "{of:?}");
        assert!((value(path, "busiest_link") - 1.0).abs() < 1e-9, "{of:?}");
        assert!(value(star, "sent") <= value(path, "sent") && value(star, "busiest_link") > 1.0, "{of:?}");
        assert!(value(auto, "seconds") <= 1.01 * value(path, "seconds"), "{of:?}");
    }
    let wide = text("codes --codes clay:n=14,k=10,d=13");
    assert!(wide.contains("256 sub-blocks"), "{wide}");
}
