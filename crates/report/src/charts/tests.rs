use proptest::prelude::*;
use serde_json::{Value, json};

use super::heat::{CLOSED, shade};
use super::*;
use crate::run::tests::{full_report, report, run};

fn of(charts: &[Chart], name: &str) -> Option<String> {
    charts.iter().find(|chart| chart.name == name).map(|chart| chart.svg.clone())
}

/// The points of the thick lines of a picture.
fn lines(svg: &str) -> Vec<Vec<(f64, f64)>> {
    let line = |line: &str| {
        let points = line.split("points=\"").nth(1)?.split('"').next()?;
        let point = |xy: &str| {
            let (x, y) = xy.split_once(',')?;
            Some((x.parse().ok()?, y.parse().ok()?))
        };
        line.contains("stroke-width=\"2\"")
            .then(|| points.split_whitespace().filter_map(point).collect())
    };
    svg.split("<polyline").filter_map(line).collect()
}

#[test]
fn a_line_over_time_goes_where_its_rows_are() {
    let charts = all(&[run("a", &[1e5, 2e5, 1e5, 2e5])]);
    let drawn = lines(&of(&charts, "rate").unwrap());
    let [line] = &drawn[..] else { panic!("{drawn:?}") };
    assert_eq!(line.len(), 4);
    // Even steps to the right; up is down; the same rates at the same height.
    let step = line[1].0 - line[0].0;
    assert!(line.windows(2).all(|two| (two[1].0 - two[0].0 - step).abs() < 2.0), "{line:?}");
    assert!(line[1].1 < line[0].1 && line[0].1 == line[2].1 && line[1].1 == line[3].1);
    // From zero: 2e5 is twice as high as 1e5, over the bottom of the picture.
    let bottom = 2.0 * line[0].1 - line[1].1;
    assert!((f64::from(SIZE.1) - 12.0 - 46.0 - bottom).abs() < 3.0, "{bottom}");
}

#[test]
fn half_of_the_requests_are_at_half_of_the_line() {
    // All below 98 us but one in a hundred, which take 2 ms.
    let mut json = report(&[1e5; 5]);
    let n = json["latency_ns"]["n"].as_u64().unwrap();
    json["distribution"]["n"] = json!([n - n / 100, n / 100]);
    let run = Run::from_json("a", json).unwrap();
    let drawn = lines(&of(&all(&[run]), "latency").unwrap());
    let line = &drawn[0];
    // It rises at 99 %, two of log10(500 000 / 10) = 4.7 steps to the right.
    let (left, right) = (line[0].0, line[line.len() - 1].0);
    let rise = line.windows(2).find(|two| two[0].1 > two[1].1 + 20.0).unwrap()[0].0;
    assert!(((rise - left) / (right - left) - 2.0 / 4.7).abs() < 0.01, "{line:?}");
    // Where fewer than ten are beyond it goes on in dashes, to the longest of all.
    let dashes = &drawn[1..];
    assert!(dashes.len() > 5 && dashes.iter().all(|dash| dash[0].0 >= right - 1.0), "{dashes:?}");
    let end = dashes.iter().flatten().map(|point| point.0).fold(0.0, f64::max);
    assert!(((end - left) / (right - left) - 5.7 / 4.7).abs() < 0.02, "{end}");
}

/// A report of rows of which some had no request, and a drive that folds.
fn silent() -> Value {
    let mut json = full_report(&[1e5, 1e5, 0.0, 0.0, 1e5, 0.0, 1e5, 2e5]);
    for row in json["series"].as_array_mut().unwrap() {
        row["programmed"]["folds"] = 100.into();
        if row["iops"] == 0.0 {
            row["p50"] = Value::Null;
            row["p999"] = Value::Null;
            row["write_amplification"] = Value::Null;
        }
    }
    json
}

#[test]
fn lines_are_broken_where_there_was_no_request() {
    let charts = all(&[Run::from_json("a", silent()).unwrap()]);
    let rate = of(&charts, "rate").unwrap();
    let drawn = lines(&rate);
    assert_eq!(drawn.iter().map(Vec::len).collect::<Vec<_>>(), [2, 2]);
    assert_eq!(rate.matches("<circle").count(), 1, "a row between two without");
    let bands = of(&charts, "bands").unwrap();
    assert_eq!(bands.matches("<circle").count(), 2);
    for name in ["rate", "bands"] {
        let chart = charts.iter().find(|chart| chart.name == name).unwrap();
        assert!(chart.caption.ends_with("Lines are broken where no request ended."));
    }
}

#[test]
fn time_is_the_same_in_all_pictures() {
    // Dies were looked at until 3 s, and rows end at 5 s; another run at 10 s.
    let full = |rows: usize| Run::from_json("a", full_report(&vec![1e5; rows])).unwrap();
    let one = all(&[full(5)]);
    let first = |name: &str| lines(&of(&one, name).unwrap())[0][0].0;
    assert_eq!(first("rate"), first("over-time"));
    // The first row is half a second wide before its middle: a tenth of what there is.
    let wide = f64::from(SIZE.0) - 82.0 - 24.0;
    assert!((first("rate") - 94.0 - wide / 10.0).abs() < 3.0, "{}", first("rate"));
    for name in ["rate", "bands", "programmed", "tail"] {
        let svg = of(&one, name).unwrap();
        assert!(svg.contains("0 s\n") && !svg.contains("0 ns\n"), "{name}");
    }
    let two = all(&[full(5), full(10)]);
    let right = |svg: &str| corners(svg, "#1F77B4").iter().map(|c| c.0).fold(0.0, f64::max);
    let (one, two) = (of(&one, "programmed").unwrap(), of(&two, "programmed").unwrap());
    assert!((right(&one) - 94.0 - 2.0 * (right(&two) - 94.0)).abs() < 6.0, "half as wide");
}

#[test]
fn captions_say_what_is_not_in_a_picture() {
    let caption = |runs: &[Run], name: &str| {
        all(runs).into_iter().find(|chart| chart.name == name).unwrap().caption
    };
    let plain = [Run::from_json("a", full_report(&[1e5; 5])).unwrap()];
    let folds = [Run::from_json("a", silent()).unwrap()];
    for name in ["amplification", "over-time", "programmed"] {
        assert!(!caption(&plain, name).contains("fold"), "{name}");
        assert!(caption(&folds, name).contains("olds of the SLC cache"), "{name}");
    }
    assert!(caption(&folds, "programmed").contains("told where that time began"));
    for chart in all(&folds) {
        let title = format!("<title>{}</title>", chart.caption);
        assert!(chart.caption.ends_with('.') && chart.svg.contains(&title), "{}", chart.name);
        assert!(chart.svg.starts_with("<svg"), "{}", chart.name);
    }
}

#[test]
fn what_colours_mean_is_below_the_picture() {
    let runs = [run("a", &[1e5; 5]), run("b", &[2e5; 5])];
    for (name, key) in [("rate", "[2]"), ("latency", "[2]"), ("amplification", "collection")] {
        let svg = of(&all(&runs), name).unwrap();
        let text = svg.split("<text").find(|text| text.contains(&format!("\n{key}\n")));
        // Runs are at the left of their bars, too.
        let y = text.and_then(|text| text.split(" y=\"").nth(1)?.split('"').next());
        let y: u32 = y.and_then(|y| y.parse().ok()).unwrap();
        assert!(y >= SIZE.1, "{name}: {y}");
    }
}

#[test]
fn parts_of_a_bar_follow_each_other() {
    let svg = of(&all(&[run("a", &[1e5; 5])]), "amplification").unwrap();
    let width = |colour: &str| -> f64 {
        let bar = svg.split("<rect").filter(|r| r.contains(colour) && !r.contains("width=\"14\""));
        let of = |rect: &str| rect.split("width=\"").nth(1)?.split('"').next()?.parse::<f64>().ok();
        bar.filter_map(of).next().unwrap()
    };
    let (host, collection) = (width("#1F77B4"), width("#D62A28"));
    assert!((collection / host - 0.9).abs() < 0.02, "{collection} of {host}");
}

#[test]
fn depths_make_a_line() {
    let at = |qd: u64, iops: f64| {
        let mut json = report(&[iops; 5]);
        json["workload"]["qd"] = qd.into();
        Run::from_json("a", json).unwrap()
    };
    assert!(of(&all(&[at(1, 1e4), at(2, 2e4)]), "depth").is_none(), "two are no line");
    let mut other = at(8, 8e4);
    other.drive["name"] = "another".into();
    let runs = [at(1, 1e4), at(2, 2e4), at(4, 4e4), other];
    assert!(of(&all(&runs), "depth").is_none(), "another drive is on another line");
    let drawn = lines(&of(&all(&[at(16, 1.2e5), at(1, 1e4), at(4, 4e4)]), "depth").unwrap());
    assert_eq!(drawn[0].len(), 3);
    assert!(drawn[0].is_sorted_by(|a, b| a.0 < b.0 && a.1 > b.1), "{drawn:?}");
}

#[test]
fn what_is_not_there_is_left_out() {
    let mut json = report(&[1e5]);
    json["write_amplification"] = serde_json::Value::Null;
    json["latency_ns"]["n"] = 0.into();
    json["distribution"] = json!({ "below_ns": [], "n": [] });
    let charts = all(&[Run::from_json("a", json).unwrap()]);
    assert!(charts.is_empty(), "{:?}", charts.iter().map(|c| c.name).collect::<Vec<_>>());
}

#[test]
fn ends_without_requests_are_left_out() {
    let mut json = report(&[1e5; 5]);
    json["latency_ns"]["n"] = 0.into();
    json["distribution"] = json!({ "below_ns": [5, 9], "n": [0, 0] });
    let charts = all(&[Run::from_json("a", json).unwrap()]);
    assert!(of(&charts, "latency").is_none() && of(&charts, "rate").is_some());
}

/// The corners of the filled shapes of a colour.
fn corners(svg: &str, colour: &str) -> Vec<(f64, f64)> {
    let shape = svg.split("<polygon").find(|shape| shape.contains(&format!("\"{colour}\"")));
    let points = shape.and_then(|s| s.split("points=\"").nth(1)?.split('"').next()).unwrap_or("");
    let point = |xy: &str| {
        let (x, y) = xy.split_once(',')?;
        Some((x.parse().ok()?, y.parse().ok()?))
    };
    points.split_whitespace().filter_map(point).collect()
}

/// How high the shape of a colour is.
fn height(svg: &str, colour: &str) -> f64 {
    let ys = || corners(svg, colour).into_iter().map(|corner| corner.1);
    ys().fold(0.0, f64::max) - ys().fold(f64::MAX, f64::min)
}

#[test]
fn parts_over_time_stand_on_each_other() {
    let full = Run::from_json("a", full_report(&[1e5; 5])).unwrap();
    let charts = all(std::slice::from_ref(&full));
    let programmed = of(&charts, "programmed").unwrap();
    let (host, collection) = (height(&programmed, "#1F77B4"), height(&programmed, "#D62A28"));
    let metadata = height(&programmed, "#FF7F0E");
    assert!(host > 100.0 && (collection / host - 0.5).abs() < 0.02, "{collection} of {host}");
    assert!((metadata / host - 0.25).abs() < 0.02, "{metadata} of {host}");
    let bottom =
        |colour: &str| corners(&programmed, colour).iter().map(|c| c.1).fold(0.0, f64::max);
    assert!((bottom("#1F77B4") - host - bottom("#D62A28")).abs() < 2.0, "on top of it");
    assert!(programmed.contains("collection") && !programmed.contains("padding"), "what there is");
    let tail = of(&charts, "tail").unwrap();
    let (first, second) = (height(&tail, "#1F77B4"), height(&tail, "#D62A28"));
    assert!((first / second - 3.0).abs() < 0.05, "{first} {second}");
    assert!(tail.contains("die, behind program of user") && !tail.contains("all others"));
    // Runs one below the other; one of before has none, and the others keep their numbers.
    let two = of(&all(&[run("old", &[1e5; 5]), full.clone(), full]), "programmed").unwrap();
    assert!(two.contains("[2]") && two.contains("[3]") && !two.contains("[1]"));
    assert_eq!(two.matches("<polygon").count(), 6);
}

/// What cells are painted in a colour: line, first, how many.
fn cells(svg: &str, colour: &str) -> Vec<[u32; 3]> {
    let path =
        svg.split("<path ").skip(1).find(|path| path.contains(&format!("fill=\"{colour}\"")));
    let path = path.and_then(|path| path.split(" d=\"").nth(1)?.split('"').next()).unwrap_or("");
    let cell = |cell: &str| {
        let (x, rest) = cell.split_once(' ')?;
        let (y, rest) = rest.split_once('h')?;
        Some([y.parse().ok()?, x.parse().ok()?, rest.split('v').next()?.parse().ok()?])
    };
    path.split('M').skip(1).filter_map(cell).collect()
}

#[test]
fn each_die_and_chunk_has_its_cell() {
    let charts = all(&[Run::from_json("a", full_report(&[1e5; 5])).unwrap()]);
    let dies = of(&charts, "dies").unwrap();
    let (least, most) = ("#c6dbef", "#08306b");
    assert_eq!(cells(&dies, most), [[1, 0, 3]]);
    assert_eq!(cells(&dies, least), [[0, 0, 1], [2, 0, 3], [3, 0, 1]]);
    assert!(dies.contains(">0/0<") && dies.contains(">1/1<") && dies.contains(">3 s<"));
    let wear = of(&charts, "wear").unwrap();
    assert_eq!(cells(&wear, "#d62a28"), [[1, 3, 1]], "offline");
    assert_eq!(cells(&wear, least), [[0, 0, 1], [1, 0, 3], [3, 0, 4]]);
    assert!(wear.contains(">erases: 1<") && wear.contains(">9<") && wear.contains(">chunk 3<"));
    let valid = of(&charts, "valid").unwrap();
    assert_eq!(cells(&valid, "#ff7f0e"), [[0, 2, 1]], "open");
    assert_eq!(cells(&valid, "#ffffff"), [[0, 0, 1], [3, 0, 4]], "free");
    assert_eq!(cells(&valid, "#d62a28"), [[1, 3, 1]], "offline");
    assert_eq!(cells(&valid, most), [[0, 3, 1], [2, 0, 4]]);
    let mut hidden = full_report(&[1e5; 5]);
    hidden["chunks"]["valid"] = serde_json::Value::Null;
    let charts = all(&[Run::from_json("a", hidden).unwrap()]);
    let states = charts.iter().find(|chart| chart.name == "valid").unwrap();
    assert_eq!(cells(&states.svg, "#ff7f0e"), [[0, 2, 1]], "open");
    assert_eq!(cells(&states.svg, CLOSED)[0], [0, 1, 1]);
    assert!(states.svg.contains(">closed<") && !states.svg.contains("100 %"), "{}", states.svg);
    assert!(states.caption.contains("only the states") && of(&charts, "wear").is_some());
}

#[test]
fn what_is_even_has_one_shade_and_what_is_beyond_all_of_the_time_is_told() {
    let mut json = full_report(&[1e5; 5]);
    json["chunks"]["erases"] = json!(vec!["0 0 0 0"; 4]);
    json["chunks"]["states"] = json!(vec!["cccc"; 4]);
    json["dies"]["busy"] = json!(["0 100 250", "0 0 0", "0 0 0", "0 0 0"]);
    let charts = all(&[Run::from_json("a", json).unwrap()]);
    let wear = of(&charts, "wear").unwrap();
    assert_eq!(wear.matches("width=\"16\"").count(), 1, "{wear}");
    assert!(wear.contains(">erases: 0<"));
    let dies = charts.iter().find(|chart| chart.name == "dies").unwrap();
    assert!(dies.svg.contains(">250 %<") && dies.caption.contains("count each"));
    assert_eq!(cells(&dies.svg, "#08306b"), [[0, 2, 1]]);
    assert_ne!(cells(&dies.svg, "#08306b"), cells(&dies.svg, &shade(4)), "100 is less than 250");
}

#[test]
fn too_many_cells_are_joined_into_their_mean() {
    let mut json = full_report(&[1e5; 5]);
    let line = |n: u32| (0..64).map(|_| (100 * (n % 2)).to_string()).collect::<Vec<_>>().join(" ");
    let ends: Vec<u32> = (1..65).collect();
    let busy = (0..256).map(line).collect::<Vec<_>>();
    json["dies"] = json!({ "pus": 16, "ends": ends, "busy": busy });
    let dies = of(&all(&[Run::from_json("a", json).unwrap()]), "dies").unwrap();
    // An idle and a busy one are half busy.
    assert_eq!(dies.matches("<path").count(), 1);
    assert_eq!(cells(&dies, "#5d7ca6").len(), 128, "{dies}");
}

/// From nothing to more than there can be.
fn figure() -> impl Strategy<Value = f64> {
    prop_oneof![Just(0.0), 0.0..1e6, (-300.0..15.1f64).prop_map(|x| 10f64.powf(x)), Just(1e15)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    /// Whatever figures there are, something is drawn or nothing, or the report is
    /// refused, and nobody panics.
    #[test]
    fn any_figures_can_be_drawn(
        rows in prop::collection::vec((figure(), figure(), prop::option::of(figure())), 0..40),
        ends in prop::collection::btree_map(1u64.., 0u64..1 << 40, 0..20),
        (reasons, depth) in (prop::array::uniform5(figure()), any::<u64>()),
    ) {
        let mut wild = report(&[1e5; 5]);
        let sum: u64 = ends.values().sum();
        wild["latency_ns"]["n"] = sum.into();
        wild["latency_ns"]["max"] = reasons[0].into();
        let (below, n): (Vec<u64>, Vec<u64>) = ends.into_iter().unzip();
        wild["distribution"] = json!({ "below_ns": below, "n": n });
        let row = |&(second, iops, p50): &(f64, f64, Option<f64>)| {
            json!({ "second": second, "seconds": 1.0, "iops": iops, "p50": p50,
                    "p999": p50, "write_amplification": p50, "free_chunks": null })
        };
        wild["series"] = rows.iter().map(row).collect();
        let [total, user, gc, padding, metadata] = reasons;
        wild["write_amplification"] = json!({ "total": total, "user": user, "gc": gc,
            "padding": padding, "metadata": metadata });
        wild["workload"]["qd"] = depth.into();
        if let Ok(wild) = Run::from_json("a", wild) {
            crate::page(&[run("b", &[1e5; 5]), wild.clone(), wild]);
        }
    }
}
