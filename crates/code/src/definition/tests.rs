//! Definitions: an accepted one gives the code that it describes, a bad one is refused with the reason, and
//! nothing panics.

use kintsu_algebra::{inv, mul};
use kintsu_dag::{BindData, JoinData, Vertex};
use proptest::prelude::*;

use super::*;
use crate::parse;

/// MISER (4,2) of OpenEC's Fig. 2 by hand: a data block is repaired from half of each of the others.
fn miser() -> Definition {
    let (half, p) =
        (inv(2).unwrap(), [[inv(4).unwrap(), inv(5).unwrap()], [inv(6).unwrap(), inv(7).unwrap()]]);
    // Parity j, part c: sum_i p[i][j] d_i[c] + 1/2 sum_l p[l][j] d_c[l].
    let entry = |j: usize, c: usize, i: usize, l: usize| {
        let first = if l == c { p[i][j] } else { 0 };
        first ^ if i == c { mul(half, p[l][j]) } else { 0 }
    };
    let mut generator =
        Matrix::identity(4).as_slice().chunks(4).map(|r| Elements(r.to_vec())).collect::<Vec<_>>();
    for (j, c) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        generator.push(Elements([(0, 0), (0, 1), (1, 0), (1, 1)].map(|(i, l)| entry(j, c, i, l)).to_vec()));
    }
    let matrix = Matrix::from_vec(8, 4, generator.iter().flat_map(|r| r.0.clone()).collect()).unwrap();
    let repair = |lost: usize, read: [usize; 3]| {
        let coefs =
            matrix.select_rows(read).express(&matrix.select_rows([2 * lost, 2 * lost + 1])).unwrap().unwrap();
        let join = |sub: usize| {
            let terms = read.iter().zip(coefs.row(sub)).filter(|(_, c)| **c != 0);
            let (children, coefs): (Vec<_>, Vec<u8>) = terms.map(|(&v, &c)| (Vertex(v as u32), c)).unzip();
            JoinData { parent: Vertex((2 * lost + sub) as u32), children, coefs: Elements(coefs) }
        };
        GraphData { n: 4, w: 2, joins: vec![join(0), join(1)], binds_x: vec![], binds_y: vec![] }
    };
    Definition {
        name: "user:miser".into(),
        n: 4,
        k: 2,
        w: 2,
        generator,
        distance: 3,
        groups: vec![],
        place: None,
        encode: None,
        repairs: vec![repair(0, [2, 4, 6]), repair(1, [1, 5, 7])],
    }
}

fn lrc() -> Definition {
    Definition::of(parse("azure-lrc:n=8,k=4,r=2").unwrap().as_ref(), "user:lrc").unwrap()
}

fn refusal(definition: &Definition) -> String {
    definition.prove().expect_err("a bad definition").to_string()
}

fn spoil(change: impl Fn(&mut Definition)) -> String {
    let mut definition = miser();
    change(&mut definition);
    refusal(&definition)
}

#[test]
fn a_code_by_hand_repairs_as_its_graphs_say() {
    let code = miser().prove().unwrap();
    assert_eq!((code.name(), code.family()), ("user:miser", "user"));
    assert_eq!((code.n(), code.k(), code.w(), code.distance()), (4, 2, 2, 3));
    for (lost, leaves) in [(0, [2, 4, 6]), (1, [1, 5, 7])] {
        let others: Vec<_> = blocks(4).filter(|b| b.0 != lost).collect();
        let graph = code.decode(&others, &[BlockIndex(lost)]).unwrap();
        assert_eq!(graph.leaves(), leaves.map(Vertex));
    }
    assert_eq!(Definition::of(code.as_ref(), "user:miser").unwrap(), miser());
}

#[test]
fn a_code_of_any_family_goes_under_a_new_name() {
    let mut proved = 0;
    for family in crate::families() {
        let code = parse(family.example).unwrap();
        let definition = Definition::of(code.as_ref(), "user:again").unwrap();
        let again = match definition.prove() {
            // Codes whose proof needs a theorem with parameters, and very large ones, cannot be definitions.
            Err(CodeError::Unsupported { .. }) => continue,
            Err(CodeError::Invalid { what, .. }) if what == "entries of the generator" => continue,
            again => again.unwrap(),
        };
        proved += 1;
        assert_eq!((again.name(), again.generator()), ("user:again", code.generator()), "{}", code.name());
        assert_eq!((again.place(), again.groups()), (code.place(), code.groups()), "{}", code.name());
        assert_eq!(GraphData::from(&again.encode()), GraphData::from(&code.encode()), "{}", code.name());
        for lost in blocks(code.n()) {
            let others: Vec<_> = blocks(code.n()).filter(|b| *b != lost).collect();
            let repair = |code: &dyn Code| GraphData::from(&code.decode(&others, &[lost]).unwrap());
            assert_eq!(repair(again.as_ref()), repair(code.as_ref()), "{}: {lost}", code.name());
        }
        let json = serde_json::to_string(&definition).unwrap();
        assert_eq!(serde_json::from_str::<Definition>(&json).unwrap(), definition, "{}", code.name());
    }
    assert!(proved >= 8, "{proved}");
}

#[test]
fn large_codes_travel_where_a_theorem_shows_their_distance() {
    for name in ["rs:n=120,k=100", "hitchhiker-xor:n=40,k=30"] {
        let code = parse(name).unwrap();
        let definition = Definition::of(code.as_ref(), "user:large").unwrap();
        assert_eq!(definition.prove().unwrap().distance(), code.distance());
        let mut spoilt = definition.clone();
        let last = spoilt.generator.len() - 1;
        spoilt.generator[last].0[code.w() - 1] = 0;
        assert!(spoilt.prove().is_err());
    }
}

#[test]
fn a_definition_comes_back_from_json_and_messagepack() {
    for definition in [miser(), lrc()] {
        let json = serde_json::to_string(&definition).unwrap();
        assert_eq!(serde_json::from_str::<Definition>(&json).unwrap(), definition);
        let packed = rmp_serde::to_vec_named(&definition).unwrap();
        assert_eq!(rmp_serde::from_slice::<Definition>(&packed).unwrap(), definition);
    }
    let json = serde_json::to_value(miser()).unwrap();
    assert_eq!(json["generator"][3], "00000001");
    assert_eq!(json["repairs"][0]["joins"][0]["parent"], 0);
    assert!(json.get("groups").is_none() && json.get("encode").is_none());
}

/// The example of `docs/format.md`, and the file, which was computed by another program.
#[test]
fn the_documented_examples_are_codes() {
    let docs = include_str!("../../../../docs/format.md");
    let example = docs.split("```json\n").find(|text| text.starts_with("{\"name\": \"user:xor\"")).unwrap();
    let definition: Definition = serde_json::from_str(example.split("```").next().unwrap()).unwrap();
    assert_eq!(definition.prove().unwrap().distance(), 2);
    let file = include_str!("../../../../docs/examples/miser-4-2.json");
    let definition: Definition = serde_json::from_str(file).unwrap();
    assert_eq!(definition, Definition { name: "user:miser-4-2".into(), ..miser() });
}

#[test]
fn the_second_proof_is_the_first() {
    let (first, second) = (miser().prove().unwrap(), miser().prove().unwrap());
    assert!(Arc::ptr_eq(&first, &second));
    let other = Definition { name: "user:other".into(), ..miser() }.prove().unwrap();
    assert!(!Arc::ptr_eq(&first, &other));
}

#[test]
fn names_are_plain() {
    for good in ["user:a", "user:0", "user:my_code-1.2", &format!("user:{}", "x".repeat(63))] {
        check_name(good).unwrap();
    }
    for bad in ["", "user:", "a", "rs:a", "user:A", "user:-a", "user:a b", "user:ä", "user:a/b", "user:a:b"]
    {
        assert!(check_name(bad).unwrap_err().to_string().contains("user:"), "{bad}");
    }
    let long = check_name(&format!("user:{}", "x".repeat(100_000))).unwrap_err().to_string();
    assert!(long.len() < 500, "{long}");
    assert!(parse("user:a").unwrap_err().to_string().contains("looked up in the cluster"));
}

#[test]
fn false_claims_are_refused_with_the_reason() {
    assert!(spoil(|d| d.distance = 4).contains("1 to n - k + 1 = 3"));
    assert!(spoil(|d| d.generator[7] = d.generator[6].clone()).contains("cannot decode"));
    assert!(spoil(|d| d.generator[0].0[1] = 1).contains("identity on top"));
    assert!(
        spoil(|d| d.generator[5].0.push(1))
            .contains("expected 8 rows of 4 elements: n=4, k=2, w=2, got 5 in row 5")
    );
    assert!(spoil(|d| drop(d.generator.pop())).contains("got 7 rows"));
    assert!(spoil(|d| d.repairs[0].joins[0].coefs.0[0] ^= 1).contains("fails its proof"));
    assert!(spoil(|d| drop(d.repairs[0].joins.pop())).contains("all 2 symbols"));
    assert!(spoil(|d| d.repairs[0].joins.clear()).contains("one or more symbols computed"));
    assert!(spoil(|d| d.repairs[0].w = 1).contains("proves against"));
    assert!(spoil(|d| d.encode = Some(d.repairs[0].clone())).contains("encode graph"));
    assert!(spoil(|d| d.groups = vec![blocks(2).collect()]).contains("each determined by the others"));
    assert!(spoil(|d| d.groups = vec![vec![]]).contains("two or more blocks"));
    assert!(spoil(|d| d.groups = vec![vec![BlockIndex(0), BlockIndex(200)]]).contains("below n"));
    assert!(spoil(|d| d.place = Some(vec![blocks(3).collect()])).contains("each block once"));
    assert!(spoil(|d| d.place = Some(vec![blocks(4).collect(), vec![]])).contains("one or more blocks"));
}

#[test]
fn graphs_without_sense_are_refused() {
    let idle = JoinData { parent: Vertex(9), children: vec![Vertex(2)], coefs: Elements(vec![1]) };
    assert!(spoil(|d| d.repairs[0].joins.push(idle.clone())).contains("a use for each virtual vertex"));
    assert!(
        spoil(|d| {
            d.repairs[0].joins[0].children.push(Vertex(7));
            d.repairs[0].joins[0].coefs.0.push(0);
        })
        .contains("only zeros for v7")
    );
    let own = JoinData { parent: Vertex(9), children: vec![Vertex(9)], coefs: Elements(vec![1]) };
    assert!(spoil(|d| d.repairs[0].joins.push(own.clone())).contains("well-formed"));
    let bind = BindData { vertex: Vertex(3), members: vec![Vertex(0)] };
    assert!(spoil(|d| d.repairs[0].binds_x.push(bind.clone())).contains("well-formed"));
}

#[test]
fn what_would_take_too_much_is_refused_before_it_is_tried() {
    assert!(spoil(|d| (d.n, d.k) = (256, 255)).contains("n <= 255"));
    assert!(spoil(|d| (d.n, d.k) = (2, 2)).contains("n > k"));
    assert!(spoil(|d| d.w = usize::MAX).contains("at most 4096"));
    assert!(spoil(|d| d.w = 0).contains("w=0"));
    assert!(spoil(|d| (d.n, d.k, d.w) = (4, 3, 1024)).contains("entries of the generator"));
    assert!(spoil(|d| d.repairs = vec![d.repairs[0].clone(); 4097]).contains("at most 4096"));
    assert!(
        spoil(|d| {
            d.repairs[0].joins[0].children[0] = Vertex((1 << 20) - 1);
            d.repairs = vec![d.repairs[0].clone(); 17];
        })
        .contains("vertices of the graphs")
    );
    assert!(spoil(|d| d.groups = vec![blocks(2).collect(); 5]).contains("got 5"));
    assert!(spoil(|d| d.groups = vec![vec![BlockIndex(0); 1 << 20]]).contains("steps to check"));
    assert!(spoil(|d| d.place = Some(vec![vec![BlockIndex(0); 1 << 20]])).contains("at most 4"));
    assert!(spoil(|d| d.repairs[0].joins[0].children = vec![Vertex(0); 1 << 27]).contains("steps to prove"));
}

#[test]
fn a_difference_is_told() {
    let change = |change: &dyn Fn(&mut Definition)| {
        let mut other = miser();
        change(&mut other);
        miser().difference(&other).unwrap_or_default()
    };
    assert_eq!(change(&|_| ()), "");
    assert!(change(&|d| d.distance = 2).contains("distance 2"));
    assert!(change(&|d| d.generator[6].0[0] ^= 1).contains("from row 6"));
    assert!(change(&|d| drop(d.repairs.pop())).contains("repair graphs"));
    assert!(change(&|d| d.place = Some(vec![blocks(4).collect()])).contains("placement"));
}

/// A small change anywhere.
fn mutate(d: &mut Definition, what: u8, at: usize, to: u8) {
    let number = usize::from(to);
    let graph = |d: &mut Definition, f: &dyn Fn(&mut GraphData)| {
        let count = d.repairs.len().max(1);
        d.repairs.get_mut(at % count).into_iter().for_each(f);
    };
    match what % 14 {
        0 => d.n = number,
        1 => d.k = number,
        2 => d.w = number,
        3 => d.distance = number,
        4 => drop(d.generator.pop()),
        5 => {
            let (rows, row) = (d.generator.len(), at);
            let row = &mut d.generator[row % rows].0;
            let col = at / rows % row.len();
            row[col] = to;
        }
        6 => d.generator[0].0.truncate(number),
        7 => d.groups.push(vec![BlockIndex(to), BlockIndex(at as u8)]),
        8 => d.place = Some(vec![vec![BlockIndex(to)]]),
        9 => d.encode = d.repairs.first().cloned(),
        10 => graph(d, &|g| g.joins[at / 2 % 2].parent = Vertex(u32::from(to))),
        11 => graph(d, &|g| g.joins[0].children[0] = Vertex(u32::from(to))),
        12 => graph(d, &|g| g.joins[0].coefs.0[0] = to),
        _ => graph(d, &|g| g.binds_y.push((Vertex(u32::from(to)), Vertex(at as u32)))),
    }
}

prop_compose! {
    fn garbage()(
        name in prop_oneof!["user:[a-z]{1,4}", ".*"],
        (n, k, w) in (0usize..8, 0usize..8, 0usize..4),
        generator in prop::collection::vec(prop::collection::vec(0u8..3, 0..8).prop_map(Elements), 0..12),
        distance in any::<usize>(),
        groups in prop::collection::vec(prop::collection::vec((0u8..9).prop_map(BlockIndex), 0..5), 0..3),
        place in prop::option::of(prop::collection::vec(prop::collection::vec((0u8..9).prop_map(BlockIndex), 0..5), 0..3)),
    ) -> Definition {
        Definition { name, n, k, w, generator, distance, groups, place, encode: None, repairs: vec![] }
    }
}

proptest! {
    #[test]
    fn garbage_is_refused_without_a_panic(definition in garbage()) {
        if let Ok(code) = definition.prove() {
            prop_assert_eq!(code.generator().rows(), definition.n * definition.w);
        }
        let packed = rmp_serde::to_vec_named(&definition).unwrap();
        prop_assert_eq!(rmp_serde::from_slice::<Definition>(&packed).unwrap(), definition);
    }

    #[test]
    fn a_changed_definition_is_refused_or_still_a_code(
        local in any::<bool>(), changes in prop::collection::vec((any::<u8>(), any::<usize>(), any::<u8>()), 1..3),
    ) {
        let good = if local { lrc() } else { miser() };
        let mut definition = good.clone();
        for (what, at, to) in changes {
            if !definition.generator.iter().any(|row| row.0.is_empty()) {
                mutate(&mut definition, what, at, to);
            }
        }
        prop_assert_eq!(good.difference(&definition).is_none(), good == definition);
        if let Ok(code) = definition.prove() {
            let lost: Vec<_> = blocks(code.n()).take(code.distance() - 1).collect();
            let left: Vec<_> = blocks(code.n()).skip(lost.len()).collect();
            let graph = code.decode(&left, &lost).unwrap();
            prop_assert!(graph.prove(code.generator()).is_ok());
            prop_assert!(code.encode().prove(code.generator()).is_ok());
        }
    }

    #[test]
    fn text_that_is_no_definition_is_an_error(text in ".{0,60}", cut in any::<prop::sample::Index>()) {
        prop_assert!(serde_json::from_str::<Definition>(&text).is_err());
        let json = serde_json::to_string(&miser()).unwrap();
        prop_assert!(serde_json::from_str::<Definition>(&json[..cut.index(json.len())]).is_err());
    }
}
