//! How figures are shown: as lines of text, and where these stand on a screen.
//!
//! Guarantees: what comes from a server neither steers the terminal nor breaks a line,
//! and a screen of any size is drawn on. Nothing here fails.

use drive::say::harmless;
use measure::units;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::Paragraph;

use super::figures::{Figures, Operation, PERCENTILES};
use super::why::Between;

/// The longest text of a server that is shown.
const LONGEST: usize = 160;
/// The width of a die in the list, and of a bar.
const CELL: usize = 18;
const BAR: usize = 10;
/// The width of a cause's name.
const NAME: usize = 22;

/// What is shown.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    /// Where it comes from.
    pub address: String,
    /// The newest figures.
    pub figures: Option<Figures>,
    /// Why there are none that are newer.
    pub gone: Option<String>,
    /// It stays as it is.
    pub is_paused: bool,
    /// Lines of lists that are passed over.
    pub scroll: usize,
    /// Why requests take what they take is shown, in place of how the drive is.
    pub is_why: bool,
    /// What there is of that, or why there is nothing yet.
    pub why: Option<Result<Between, String>>,
}

/// A text of a server, on one line.
fn shown(text: &str) -> String {
    let text = harmless(&text.chars().take(LONGEST).collect::<String>());
    text.replace('\n', " ")
}

/// A share as a bar of so many columns.
fn bar(share: f64, width: usize) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (share.clamp(0.0, 1.0) * (width * 8) as f64).round() as usize;
    let text = "█".repeat(eighths / 8) + EIGHTHS[eighths % 8];
    format!("{text:<width$}")
}

fn or_none(number: Option<f64>, show: impl Fn(f64) -> String) -> String {
    number.map_or_else(|| "-".into(), show)
}

/// What it is, and how it is.
fn head(f: &Figures) -> [String; 2] {
    let time = units::time_ns(f.uptime * 1e9);
    let size = units::capacity(f.bytes.max(0.0) as u64);
    let first = format!("{}  {size}, {}, up {time}", shown(&f.drive), shown(&f.front));
    let ratio = |wa: f64| format!("{wa:.2}");
    let [now, all] = f.amplification.map(|wa| or_none(wa, ratio));
    let mut second = format!("write amp. {now} now, {all} in all");
    let count = |n: f64, what: &str| format!("  {} {what}", units::count(n.max(0.0)));
    second += &f.connections.map_or_else(String::new, |n| count(n, "connected"));
    second += &f.inside.map_or_else(String::new, |n| count(n, "inside"));
    second += &f.watts.map_or_else(String::new, |w| format!("  {w:.2} W"));
    second += &f.celsius.map_or_else(String::new, |c| format!("  {c:.1} C"));
    [first, second]
}

/// A table of operations, with its head.
fn operations(f: &Figures) -> Vec<String> {
    let [p50, p99, p999] = PERCENTILES;
    let row = |[op, rate, bytes, a, b, c, failed]: [&str; 7]| {
        format!("{op:<13}{rate:>11}{bytes:>13}{a:>10}{b:>10}{c:>10}{failed:>10}")
    };
    let line = |one: &Operation| {
        let [a, b, c] = one.took.map(|ns| or_none(ns, units::time_ns));
        let (rate, failed) = (units::count(one.rate), units::count(one.failures.max(0.0)));
        let bytes = format!("{}/s", units::bytes_decimal(one.bytes));
        row([&shown(&one.name), &rate, &bytes, &a, &b, &c, &failed])
    };
    let head = row(["", "requests/s", "bytes", p50, p99, p999, "failed"]);
    [head].into_iter().chain(f.operations.iter().map(line)).collect()
}

/// Where time went, a line each.
fn causes(f: &Figures) -> Vec<String> {
    let line = |([cause, behind], share): &([String; 2], f64)| {
        let name = if behind.is_empty() { cause.clone() } else { format!("{cause}: {behind}") };
        let name: String = shown(&name).chars().take(NAME).collect();
        format!("{name:<NAME$} {} {:>4.0} %", bar(*share, BAR), share * 100.0)
    };
    f.causes.iter().map(line).collect()
}

/// The load of each die, several to a line of so many columns.
fn dies(f: &Figures, width: usize) -> Vec<String> {
    let cell =
        |(n, load): (usize, &f64)| format!("{n:>4} {}{:>3.0}", bar(*load, BAR), load * 100.0);
    let cells: Vec<_> = f.dies.iter().enumerate().map(cell).collect();
    let each = ((width + 1) / (CELL + 1)).max(1);
    cells.chunks(each).map(|cells| cells.join(" ")).collect()
}

/// All other numbers, a line for each kind.
fn counts(f: &Figures) -> Vec<String> {
    let number = |(name, n): &(String, f64)| {
        // With an underscore it is a label's word.
        let name = shown(name).replace('_', " ");
        format!(
            "{} {name}",
            if *n < 10.0 && n.fract() != 0.0 {
                format!("{n:.2}")
            } else {
                units::count(n.max(0.0))
            }
        )
    };
    let line = |(what, all): &(&str, Vec<(String, f64)>)| {
        let all: Vec<_> = all.iter().map(number).collect();
        format!("{what:<13}{}", all.join(", "))
    };
    f.counts.iter().map(line).collect()
}

/// What is wrong with it.
fn trouble(f: &Figures) -> Option<String> {
    f.read_only.as_ref().map(|why| format!("read-only: {}", shown(why)))
}

/// All of it as text, of any length.
pub(super) fn plain(f: &Figures) -> Vec<String> {
    let mut all = head(f).to_vec();
    all.extend(trouble(f));
    for (title, lines) in [
        ("", operations(f)),
        ("time by cause", causes(f)),
        ("load of dies, %", dies(f, 4 * CELL)),
        ("", counts(f)),
    ] {
        if !lines.is_empty() {
            all.push(title.into());
            all.extend(lines);
        }
    }
    all
}

/// A list with its title, from a line on. Gives how far it can be moved.
fn list(frame: &mut Frame, area: Rect, title: &str, lines: Vec<String>, scroll: usize) -> usize {
    let room = usize::from(area.height).saturating_sub(1);
    let most = lines.len().saturating_sub(room);
    let from = scroll.min(most);
    let more = lines.len().saturating_sub(from + room);
    let title = if more > 0 { format!("{title} ({more} more below)") } else { title.into() };
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let lines = lines.into_iter().skip(from).take(room).map(Line::raw);
    let all: Vec<_> = [Line::styled(title, bold)].into_iter().chain(lines).collect();
    frame.render_widget(Paragraph::new(all), area);
    most
}

/// Why requests take what they take, in lines of so many columns.
fn why(state: &State, columns: usize) -> Vec<String> {
    let lines = match &state.why {
        None if state.is_paused => vec!["paused: p goes on".into()],
        None => vec!["looking…".into()],
        Some(Ok(between)) => between.lines(columns),
        Some(Err(text)) => vec![shown(text)],
    };
    lines.iter().flat_map(|line| folded(line, columns)).collect()
}

/// A line of at most so many columns, and what is beyond them below it, from a blank on.
fn folded(line: &str, columns: usize) -> Vec<String> {
    const INDENT: &str = "    ";
    let mut all: Vec<String> = Vec::new();
    let mut rest = line.to_string();
    while let Some((end, _)) = rest.char_indices().nth(columns.max(2 * INDENT.len())) {
        let from = if all.is_empty() { 0 } else { INDENT.len() };
        let at = rest[from..end].rfind(' ').map_or(end, |at| from + at);
        let at = if at == from { end } else { at };
        let below = format!("{INDENT}{}", rest[at..].trim_start());
        rest.truncate(at);
        all.push(std::mem::replace(&mut rest, below));
    }
    all.push(rest);
    all
}

/// Draws all of it. Gives how far its lists can be moved on a screen of this size.
pub(super) fn draw(frame: &mut Frame, state: &State) -> usize {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let loud = Style::new().add_modifier(Modifier::REVERSED);
    let keys = "q quit  p pause  w why  ↑ ↓ lists";
    let foot =
        format!("{keys}   {}{}", state.address, if state.is_paused { "   paused" } else { "" });
    let gone = state.gone.as_ref().map(|why| format!("{}; trying again", shown(why)));
    let Some(f) = &state.figures else {
        let text = gone.unwrap_or_else(|| "looking…".into());
        frame.render_widget(Paragraph::new(vec![Line::raw(text), Line::raw(foot)]), frame.area());
        return 0;
    };
    let [first, second] = head(f);
    let third = gone.or_else(|| trouble(f));
    let third = third.map_or_else(Line::default, |text| Line::styled(text, loud));
    let head = vec![Line::styled(first, bold), Line::raw(second), third];
    if state.is_why {
        let heights = [Constraint::Length(3), Constraint::Min(0), Constraint::Length(1)];
        let [top, middle, end] = Layout::vertical(heights).areas(frame.area());
        frame.render_widget(Paragraph::new(head), top);
        let lines = why(state, middle.width.into());
        let most = list(frame, middle, "why", lines, state.scroll);
        frame.render_widget(Paragraph::new(foot), end);
        return most;
    }
    let (table, last) = (operations(f), counts(f));
    let heights = [
        Constraint::Length(3),
        Constraint::Length(table.len() as u16 + 1),
        Constraint::Min(0),
        Constraint::Length(last.len() as u16),
        Constraint::Length(1),
    ];
    let [top, middle, lists, bottom, end] = Layout::vertical(heights).areas(frame.area());
    frame.render_widget(Paragraph::new(head), top);
    let lines: Vec<_> = table
        .into_iter()
        .enumerate()
        .map(|(n, text)| Line::styled(text, if n == 0 { bold } else { Style::new() }))
        .collect();
    frame.render_widget(Paragraph::new(lines), middle);
    let halves = [Constraint::Length((NAME + BAR + 9) as u16), Constraint::Min(0)];
    let [left, right] = Layout::horizontal(halves).areas(lists);
    let all = causes(f);
    let title = if all.is_empty() { "time by cause: none told" } else { "time by cause" };
    let most = list(frame, left, title, all, state.scroll);
    let loads = dies(f, right.width.into());
    let most = most.max(list(frame, right, "load of dies, %", loads, state.scroll));
    frame
        .render_widget(Paragraph::new(last.into_iter().map(Line::raw).collect::<Vec<_>>()), bottom);
    frame.render_widget(Paragraph::new(foot), end);
    most
}

#[cfg(test)]
mod tests {
    use super::super::figures::tests::{figures, pages};
    use super::*;
    use proptest::prelude::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    /// A screen of some size, as lines.
    fn screen(state: &State, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| _ = draw(frame, state)).unwrap();
        let buffer = terminal.backend().buffer();
        let cells = |y| (0..width).map(move |x| buffer[(x, y)].symbol());
        (0..height).map(|y| cells(y).collect::<String>().trim_end().to_string()).collect()
    }

    fn state() -> State {
        let mut figures = figures();
        let cause = |n| ([format!("cause {n}"), String::new()], 0.5 / f64::from(1 << n));
        figures.causes = (0..9).map(cause).collect();
        State { address: "127.0.0.1:9100".into(), figures: Some(figures), ..State::default() }
    }

    #[test]
    fn a_drive_on_80_by_24() {
        let lines = screen(&state(), 80, 24);
        let shown = lines.join("\n");
        assert_eq!(
            lines[..7],
            [
                "mem:tlc,size=1G  1 GiB, nbd, up 5.00 s",
                "write amp. 3.00 now, 2.75 in all  2 connected  0 inside  2.00 W  45.5 C",
                "read-only: the disk \"full\"",
                "              requests/s        bytes       p50       p99     p99.9    failed",
                &lines[4],
                "write                  0        0 B/s         -         -         -         0",
                "flush                  0        0 B/s         -         -         -         0",
            ],
            "{shown}"
        );
        assert!(lines[4].starts_with("read              1.00 k    4.19 MB/s   9."), "{shown}");
        assert!(
            shown.contains("time by cause")
                && shown.contains("cause 0                █████        50 %"),
            "{shown}"
        );
        assert!(shown.contains("   2 ██▌        25"), "{shown}");
        assert!(
            shown.contains("chunks       0 free, 0 open, 30 closed, 0 offline, 7 ready"),
            "{shown}"
        );
        assert!(lines[23].starts_with("q quit  p pause"), "{shown}");
        assert!(shown.contains("more below"), "{shown}");
    }

    #[test]
    fn a_drive_on_120_by_40() {
        let lines = screen(&state(), 120, 40).join("\n");
        for part in
            ["cause 8", "chunk erases 1 least, 2.50 mean, 9 most", "SLC rows     50 room, 20 held"]
        {
            assert!(lines.contains(part), "{part}: {lines}");
        }
        assert!(!lines.contains("more below"), "{lines}");
    }

    /// Lists move, at most to their end.
    #[test]
    fn lists_are_moved() {
        let moved = State { scroll: 3, ..state() };
        let lines = screen(&moved, 80, 24).join("\n");
        assert!(!lines.contains("cause 0") && lines.contains("cause 3"), "{lines}");
        let far = State { scroll: usize::MAX, ..state() };
        assert!(screen(&far, 80, 24).join("\n").contains("cause 8"));
        // To the line, and not to the die, at which the last is seen.
        let mut state = state();
        let figures = state.figures.as_mut().unwrap();
        (figures.causes, figures.dies) = (Vec::new(), vec![0.5; 100]);
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
        let mut most = 0;
        terminal.draw(|frame| most = draw(frame, &state)).unwrap();
        assert!((1..50).contains(&most), "{most} of 50 lines");
        state.scroll = most;
        assert!(screen(&state, 80, 24).join("\n").contains("  99 "));
        state.scroll = most - 1;
        assert!(!screen(&state, 80, 24).join("\n").contains("  99 "));
    }

    /// Why requests take what they take fills a screen of its own, wide and narrow.
    #[test]
    fn why_requests_are_slow_is_shown() {
        let looks = crate::explained::tests::looks();
        let why = Between::looks(&looks[0], &looks[1]).map(Ok);
        assert!(why.is_some() && Between::looks(&looks[1], &looks[0]).is_none());
        let state = State { is_why: true, why, ..state() };
        for (width, half) in [(80, "    half"), (130, "  slowest half")] {
            let lines = screen(&state, width, 40).join("\n");
            for part in [
                "write amp. 3.00",
                "why\n",
                "the slowest 1 % of reads, 896 us and more: 100 % array",
                half,
                "array                                 ",
                "room 90 ns behind folds",
                "w why",
            ] {
                assert!(lines.contains(part), "{part}: {lines}");
            }
            assert!(!lines.contains("load of dies"), "{lines}");
        }
        let text = |why| screen(&State { why, ..state.clone() }, 80, 24).join("\n");
        assert!(text(None).contains("looking…"));
        let paused = State { is_paused: true, why: None, ..state.clone() };
        assert!(screen(&paused, 80, 24).join("\n").contains("paused: p goes on"));
        assert!(text(Some(Err("it cannot\u{1b}[2J".into()))).contains("it cannot\\u{1b}[2J"));
        let same = Between::looks(&looks[1], &looks[1]).map(Ok);
        assert!(text(same).contains("no request ended in 0 ns"));
    }

    /// What is wider than the screen goes on below, whole.
    #[test]
    fn long_lines_are_folded() {
        let sentence = "the slowest 1 % of reads, 896 us and more: 61 % die, behind program; 37 %";
        let words = |text: &str| text.split_whitespace().collect::<String>();
        for columns in 1..100 {
            for line in [sentence, "", "x", &"x".repeat(77), &"é".repeat(50)] {
                let lines = folded(line, columns);
                assert_eq!(words(&lines.concat()), words(line), "{columns}: {lines:?}");
                let fits = |line: &String| line.chars().count() <= columns.max(8);
                assert!(lines.iter().all(fits), "{columns}: {lines:?}");
            }
        }
        assert_eq!(folded("one two three", 9), ["one two", "    three"]);
        assert_eq!(folded("one two", 7), ["one two"]);
    }

    /// A server that is gone is told of, with what was last seen and without.
    #[test]
    fn who_is_gone_is_told_of() {
        for figures in [state().figures, None] {
            let gone = Some("nobody\u{1b}[31m is there".to_string());
            let state = State { gone, figures, is_paused: true, ..state() };
            let lines = screen(&state, 100, 30).join("\n");
            assert!(lines.contains("nobody\\u{1b}[31m is there; trying again"), "{lines}");
            assert!(lines.contains("paused"), "{lines}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Any figures are drawn on any screen, without a character that steers it.
        #[test]
        fn any_screen_is_drawn_on(page in pages(), width in 1u16..90, height in 1u16..40, scroll: usize) {
            let figures = Figures::between(None, &page);
            let plain = plain(&figures).concat();
            let steers = |c: char| c.is_control() || c == '\u{202e}';
            prop_assert!(!plain.chars().any(steers), "{plain:?}");
            let state = State { figures: Some(figures), scroll, ..State::default() };
            let lines = screen(&state, width, height).concat();
            prop_assert!(!lines.chars().any(steers), "{lines:?}");
        }
    }
}
