use super::*;

const BLOCK: u64 = 8192;

fn options(code: &str, racks: usize, dirty_stripes: usize) -> Options {
    let schemes = Scheme::all().map(|row| row.scheme).collect();
    let code = kintsu_code::parse(code).unwrap();
    Options { code, racks, block_bytes: BLOCK, dirty_stripes, by_turns: false, schemes }
}

fn writes(of: &[(u64, u64)]) -> Vec<Result<Request>> {
    let one = |&(offset, bytes): &(u64, u64)| Ok(Request { volume: 0, write: true, offset, bytes });
    of.iter().map(one).collect()
}

/// Blocks across racks with updates, in commits and for grouping.
fn blocks(report: &Report, scheme: Scheme) -> [u64; 3] {
    let traffic = report.row(scheme).unwrap().blocks;
    [traffic.append, traffic.commit, traffic.grouping].map(|bytes| bytes / BLOCK)
}

#[test]
fn a_small_trace_is_counted_as_by_hand() {
    // Blocks 0 and 1 of the first stripe, block 0 again, and one write over two stripes.
    let trace = [(0, 100), (BLOCK, BLOCK), (50, 100), (6 * BLOCK - 10, 20)];
    let report = replay("t", writes(&trace).into_iter(), &options("rs:n=9,k=6", 3, 100)).unwrap();
    assert_eq!((report.writes, report.updates, report.bytes), (4, 5, 100 + BLOCK + 100 + 20));
    assert_eq!(report.stripes_per_thousand, 2.0);
    // All three parities are in one rack, the data in the two others.
    assert_eq!(blocks(&report, Scheme::Baseline), [15, 0, 0]);
    assert_eq!(
        blocks(&report, Scheme::Parix),
        [15 + 4 * 3, 0, 0],
        "four blocks are written for the first time"
    );
    assert_eq!(blocks(&report, Scheme::DataDelta), [5, 4, 0]);
    assert_eq!(blocks(&report, Scheme::ParityDelta), [5, 9, 0]);
    assert_eq!(blocks(&report, Scheme::CauNogroup), [5, 4, 0]);
    assert_eq!(blocks(&report, Scheme::Optimal), [5, 0, 0], "replicas wait beside the parities");
    let ranges = |scheme| report.row(scheme).unwrap().ranges;
    let written = 100 + BLOCK + 100 + 20;
    assert_eq!(ranges(Scheme::Baseline).total(), 3 * written);
    assert_eq!(ranges(Scheme::Parix).total(), 3 * (written + 150 + BLOCK + 20), "bytes 50 to 100 were known");
    assert_eq!((ranges(Scheme::Optimal).append, ranges(Scheme::Optimal).commit), (written, 0));
    assert_eq!(ranges(Scheme::CauNogroup).commit, 150 + BLOCK + 20);
}

#[test]
fn nodes_send_slices_of_what_is_dirty() {
    let trace = [(0, 100), (BLOCK, BLOCK), (50, 100), (6 * BLOCK - 10, 20)];
    let report = replay("t", writes(&trace).into_iter(), &options("rs:n=9,k=6", 3, 100)).unwrap();
    let written = 100 + BLOCK + 100 + 20;
    // At most two slices a block.
    let header = kintsu_wire::frame::HEADER_BYTES as u64;
    let baseline = report.row(Scheme::Baseline).unwrap().on_nodes;
    assert!((3 * (written + 5 * header)..=3 * (written + 6 * header)).contains(&baseline.append));
    assert_eq!(baseline.commit, 0);
    let parix = report.row(Scheme::Parix).unwrap();
    assert_eq!((parix.on_nodes.append, parix.on_nodes.commit), (parix.ranges.append, 0), "no slices");
    for scheme in [Scheme::CauNogroup, Scheme::Cau, Scheme::DataDelta] {
        let row = report.row(scheme).unwrap();
        assert_eq!(row.on_nodes.append, written);
        // One block of the first stripe is dirty at its beginning, one all over, one at its end.
        let most = 3 * (BLOCK + 2 * header) + 10 + header;
        assert!((row.ranges.commit..=most).contains(&row.on_nodes.commit), "{row:?}");
    }
    let optimal = report.row(Scheme::Optimal).unwrap().on_nodes;
    assert_eq!((optimal.append, optimal.commit), (written, 0), "all parities are where the replicas are");
}

/// With a parity in each rack (CAU, Fig. 4), dirty blocks that move together save more than their moves cost; with all
/// parities in one rack nothing can be saved.
#[test]
fn data_grouping_pays_where_parities_are_in_several_racks() {
    // Blocks 0 and 4 are in rack 0 and block 1 in rack 1, again and again, each time in a commit of its own.
    let round: Vec<_> = [0, 4, 1].map(|block| (block * BLOCK, BLOCK)).into();
    let other = [(12 * BLOCK, BLOCK)];
    let trace: Vec<_> = (0..5).flat_map(|_| round.iter().chain(&other)).copied().collect();
    let run = |by_turns| {
        let options = Options { by_turns, ..options("rs:n=16,k=12", 4, 1) };
        replay("t", writes(&trace).into_iter(), &options).unwrap()
    };
    let report = run(true);
    // Each commit of the stripe: a parity's delta to three racks from each of two racks, later from one.
    assert_eq!(blocks(&report, Scheme::CauNogroup)[1] - blocks(&report, Scheme::Cau)[1], 4 * 3);
    assert_eq!(blocks(&report, Scheme::Cau)[2], 2, "two blocks changed places");
    assert_eq!(blocks(&report, Scheme::Baseline)[0], 20 * 3, "one parity is in the rack of each block");
    let together = run(false);
    assert_eq!(blocks(&together, Scheme::Cau), blocks(&together, Scheme::CauNogroup));
    let other =
        replay("t", writes(&trace).into_iter(), &Options { by_turns: true, ..options("rs:n=16,k=12", 4, 9) });
    let table = grouping(&[report, other.unwrap()]).unwrap();
    assert_eq!(table.headings, ["data grouping saves", "u_s = 1", "u_s = 9"]);
    assert!(table.rows[0][1].ends_with('%') && !table.rows[0][1].starts_with('-'), "{table:?}");
    assert_eq!(grouping(&[together]), None, "there is one u_s");
}

#[test]
fn commits_start_when_more_stripes_than_allowed_are_dirty() {
    let trace: Vec<_> = (0..7).map(|stripe| (stripe * 6 * BLOCK, 1)).collect();
    let run = |most| {
        let report = replay("t", writes(&trace).into_iter(), &options("rs:n=9,k=6", 3, most)).unwrap();
        report.row(Scheme::Cau).unwrap().blocks.commits
    };
    assert_eq!([run(1), run(2), run(6), run(7)], [4, 3, 1, 1]);
}

#[test]
fn selective_is_never_above_a_fixed_choice_and_nothing_is_below_the_bound() {
    for (code, racks) in
        [("rs:n=9,k=6", 3), ("rs:n=16,k=12", 4), ("azure-lrc:n=10,k=6,r=3", 4), ("clay:n=6,k=4,d=5", 3)]
    {
        let options = Options { block_bytes: 32768, ..options(code, racks, 5) };
        let at = |i: u64| kintsu_plan::draw(7, 1, i) % (60 * options.block_bytes);
        let trace: Vec<_> = (0..300).map(|i| (at(i), 1 + at(i + 1000) % 40_000)).collect();
        let report = replay("t", writes(&trace).into_iter(), &options).unwrap();
        for row in &report.rows {
            for traffic in [row.blocks, row.ranges] {
                assert!(
                    row.scheme.row().at_once || traffic.commit >= traffic.commit_bound,
                    "{code}: {row:?}"
                );
            }
            assert!(row.ranges.total() <= row.blocks.total() || row.scheme == Scheme::Cau);
        }
        let commit = |scheme| report.row(scheme).unwrap().blocks.commit;
        assert!(commit(Scheme::CauNogroup) <= commit(Scheme::DataDelta).min(commit(Scheme::ParityDelta)));
        let total = |scheme| report.row(scheme).unwrap().blocks.total();
        assert!(total(Scheme::Optimal) <= total(Scheme::CauNogroup), "{code}");
        assert!(report.saving(Scheme::Optimal, Scheme::Cau, Row::traffic).unwrap() > 0.2, "{code}");
        let reports = [report];
        let text = markdown(&reports);
        assert!(table(&reports).contains("optimal is") && text.contains("| average |"));
        assert_eq!(text.matches(" for 1 of 1 traces").count(), 3, "{code}: {text}");
    }
}

#[test]
fn senseless_options_and_errors_of_the_trace_are_told() {
    let said = |options: Options| replay("t", std::iter::empty(), &options).unwrap_err().to_string();
    assert!(said(options("rs:n=9,k=6", 1, 1)).contains("2 to 9"));
    assert!(said(options("rs:n=9,k=6", 2, 1)).contains("survives the loss"));
    assert!(said(options("rs:n=9,k=6", 3, 0)).contains("1 or more"));
    assert!(said(Options { block_bytes: 100, ..options("rs:n=9,k=6", 3, 1) }).contains("multiple of 4096"));
    let broken = vec![Err(ExperimentError::invalid("t, line 3", "an integer", "x"))];
    let error = replay("t", broken.into_iter(), &options("rs:n=9,k=6", 3, 1)).unwrap_err();
    assert!(error.to_string().contains("line 3"));
}
