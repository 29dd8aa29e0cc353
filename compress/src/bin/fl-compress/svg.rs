//! The chart of `compare`: relative error against bits per parameter on logarithmic axes, one labeled point per spec. A
//! line joins specs whose names differ only in a trailing number.

use std::fmt::Write as _;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 500.0;
const LEFT: f64 = 78.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 58.0;
const BOTTOM: f64 = 58.0;
// A row below the error axis for errors of zero, which a logarithmic axis cannot show.
const EXACT_ROW: f64 = 34.0;
const RADIUS: f64 = 5.0;
// Average character width at font size 12.
const CHAR_WIDTH: f64 = 6.9;
const LINE_HEIGHT: f64 = 14.0;
// Palette of Okabe and Ito (2008), safe for color-blind readers; without yellow, which is invisible on white.
const COLORS: [&str; 6] = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"];

/// One codec.
#[derive(Debug, Clone)]
pub(crate) struct Point {
    pub(crate) label: String,
    pub(crate) bits: f64,
    pub(crate) error: f64,
}

/// Draws `points`; `about` is the subtitle.
pub(crate) fn draw(about: &str, points: &[Point]) -> String {
    let exact = points.iter().any(|point| point.error == 0.0);
    let floor = HEIGHT - BOTTOM - if exact { EXACT_ROW } else { 0.0 };
    let bits = Axis::new(points.iter().map(|point| point.bits), LEFT, WIDTH - RIGHT);
    let errors = points.iter().map(|point| point.error).filter(|&error| error > 0.0);
    let error = Axis::new(errors, floor, TOP);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         font-family=\"Helvetica, Arial, sans-serif\" font-size=\"12\" fill=\"#222\">\n\
         <title>Relative error against bits per parameter</title>\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#fff\"/>\n\
         <text x=\"{LEFT}\" y=\"24\" font-size=\"16\" font-weight=\"bold\">Relative error against bits per parameter</text>\n\
         <text x=\"{LEFT}\" y=\"43\" fill=\"#555\">{}; lower and further left is better</text>\n",
        escaped(about)
    );
    axes(&mut out, &bits, &error, floor, exact);
    let places: Vec<(f64, f64)> = points
        .iter()
        .map(|point| {
            let y = if point.error > 0.0 {
                error.at(point.error)
            } else {
                floor + EXACT_ROW / 2.0
            };
            (bits.at(point.bits), y)
        })
        .collect();
    let labels = place_labels(points, &places);
    let series = series(points);
    for members in &series {
        let color = color(&series, members[0]);
        for pair in members.windows(2) {
            let ((x1, y1), (x2, y2)) = (places[pair[0]], places[pair[1]]);
            let _ = writeln!(
                out,
                "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{color}\" opacity=\"0.5\"/>"
            );
        }
    }
    for (at, ((point, &(x, y)), label)) in points.iter().zip(&places).zip(&labels).enumerate() {
        let color = color(&series, at);
        if label.far {
            let (to_x, to_y) = label.nearest(x, y);
            let _ = writeln!(
                out,
                "<line x1=\"{x:.1}\" y1=\"{y:.1}\" x2=\"{to_x:.1}\" y2=\"{to_y:.1}\" stroke=\"#999\"/>"
            );
        }
        let _ = writeln!(
            out,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{RADIUS}\" fill=\"{color}\" stroke=\"#fff\"/>\n\
             <text class=\"label\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            label.left,
            label.top + LINE_HEIGHT - 3.5,
            escaped(&point.label)
        );
    }
    out.push_str("</svg>\n");
    out
}

/// Groups points whose names differ only in a trailing number, and sorts each group by bits.
fn series(points: &[Point]) -> Vec<Vec<usize>> {
    let stem = |label: &str| {
        let stem = label.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
        stem.trim_end_matches([' ', '-', '_']).to_owned()
    };
    let mut series: Vec<(String, Vec<usize>)> = Vec::new();
    for (at, point) in points.iter().enumerate() {
        let stem = stem(&point.label);
        match series.iter_mut().find(|(known, _)| *known == stem && !stem.is_empty()) {
            Some((_, members)) => members.push(at),
            None => series.push((stem, vec![at])),
        }
    }
    let mut series: Vec<Vec<usize>> = series.into_iter().map(|(_, members)| members).collect();
    series
        .iter_mut()
        .for_each(|members| members.sort_by(|a: &usize, b: &usize| points[*a].bits.total_cmp(&points[*b].bits)));
    series
}

/// The color of the series of point `at`.
fn color(series: &[Vec<usize>], at: usize) -> &'static str {
    let index = series.iter().position(|members| members.contains(&at)).unwrap_or(0);
    COLORS[index % COLORS.len()]
}

fn axes(out: &mut String, bits: &Axis, error: &Axis, floor: f64, exact: bool) {
    let right = WIDTH - RIGHT;
    let bottom = HEIGHT - BOTTOM;
    for tick in bits.ticks() {
        let x = bits.at(tick);
        let _ = writeln!(
            out,
            "<line x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{:.1}\" stroke=\"#e4e4e4\"/>\n\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            bottom + 5.0,
            bottom + 20.0,
            number(tick)
        );
    }
    for tick in error.ticks() {
        let y = error.at(tick);
        let _ = writeln!(
            out,
            "<line x1=\"{:.1}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\" stroke=\"#e4e4e4\"/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 5.0,
            LEFT - 9.0,
            y + 4.0,
            number(tick)
        );
    }
    if exact {
        let _ = writeln!(
            out,
            "<line x1=\"{LEFT}\" y1=\"{floor:.1}\" x2=\"{right}\" y2=\"{floor:.1}\" stroke=\"#888\" stroke-dasharray=\"4 3\"/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">exact</text>",
            LEFT - 9.0,
            floor + EXACT_ROW / 2.0 + 4.0
        );
    }
    let middle = (LEFT + right) / 2.0;
    let center = (TOP + bottom) / 2.0;
    let _ = writeln!(
        out,
        "<path d=\"M{LEFT} {TOP} V{bottom} H{right}\" fill=\"none\" stroke=\"#444\"/>\n\
         <text x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\">bits per parameter</text>\n\
         <text transform=\"translate(20 {center:.1}) rotate(-90)\" text-anchor=\"middle\">relative error |x - y| / |x|</text>",
        HEIGHT - 14.0
    );
}

/// A logarithmic axis between two coordinates.
#[derive(Debug)]
struct Axis {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Axis {
    /// Covers `values` with a margin, and at least 0.6 decades.
    fn new(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let mut low = f64::INFINITY;
        let mut high = 0.0f64;
        for value in values.filter(|value| value.is_finite() && *value > 0.0) {
            (low, high) = (low.min(value), high.max(value));
        }
        if high == 0.0 {
            (low, high) = (0.1, 1.0);
        }
        let mut low = low.log10();
        let mut high = high.log10();
        let margin = (0.08 * (high - low)).max((0.6 - (high - low)) / 2.0).max(0.06);
        low -= margin;
        high += margin;
        Self { low, high, from, to }
    }

    fn at(&self, value: f64) -> f64 {
        self.from + (value.log10() - self.low) / (self.high - self.low) * (self.to - self.from)
    }

    /// Powers of ten, with more subdivisions the shorter the axis is.
    fn ticks(&self) -> Vec<f64> {
        let decades = self.high - self.low;
        let (steps, every): (&[f64], i32) = match decades {
            ..0.8 => (&[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0], 1),
            ..3.0 => (&[1.0, 2.0, 5.0], 1),
            ..10.0 => (&[1.0], 1),
            _ => (&[1.0], (decades / 8.0).ceil() as i32),
        };
        let powers = self.low.floor() as i32..=self.high.ceil() as i32;
        powers
            .filter(|power| power % every == 0)
            .flat_map(|power| steps.iter().map(move |step| step * 10f64.powi(power)))
            .filter(|tick| (self.low..=self.high).contains(&tick.log10()))
            .collect()
    }
}

/// The bounding box of a label.
#[derive(Debug, Clone, Copy)]
struct Label {
    left: f64,
    top: f64,
    width: f64,
    /// The label is not next to its point, so a line connects them.
    far: bool,
}

impl Label {
    /// The point of the box that is nearest to (`x`, `y`).
    fn nearest(&self, x: f64, y: f64) -> (f64, f64) {
        (
            x.clamp(self.left - 2.0, self.left + self.width + 2.0),
            y.clamp(self.top, self.top + LINE_HEIGHT),
        )
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.left < other.left + other.width + 4.0
            && other.left < self.left + self.width + 4.0
            && self.top < other.top + LINE_HEIGHT
            && other.top < self.top + LINE_HEIGHT
    }

    fn covers(&self, (x, y): (f64, f64)) -> bool {
        let (near_x, near_y) = self.nearest(x, y);
        (near_x - x).hypot(near_y - y) < RADIUS + 1.0
    }

    fn inside(&self) -> bool {
        self.left > LEFT + 2.0
            && self.left + self.width < WIDTH - 2.0
            && self.top > TOP - 6.0
            && self.top + LINE_HEIGHT < HEIGHT - BOTTOM
    }
}

/// Greedy placement: each label takes its first free position, next to its point, else at increasing distance.
fn place_labels(points: &[Point], places: &[(f64, f64)]) -> Vec<Label> {
    let mut placed: Vec<Label> = Vec::new();
    for (point, &(x, y)) in points.iter().zip(places) {
        let width = point.label.chars().count() as f64 * CHAR_WIDTH;
        let free = |label: &Label| {
            label.inside()
                && !placed.iter().any(|other| label.overlaps(other))
                && !places.iter().any(|&place| label.covers(place))
        };
        let label = candidates(x, y, width).find(free);
        // No free position: overlapping another label is better than leaving the chart.
        let left = (x + 9.0).min(WIDTH - 4.0 - width);
        placed.push(label.unwrap_or(Label {
            left,
            top: y - LINE_HEIGHT / 2.0,
            width,
            far: false,
        }));
    }
    placed
}

fn candidates(x: f64, y: f64, width: f64) -> impl Iterator<Item = Label> {
    let middle = y - LINE_HEIGHT / 2.0;
    let beside = x + 9.0;
    let before = x - 9.0 - width;
    let near = [
        (beside, middle),
        (before, middle),
        (x - width / 2.0, y - 8.0 - LINE_HEIGHT),
        (x - width / 2.0, y + 8.0),
    ];
    let near = near.map(|(left, top)| (left, top, false));
    let far = (1..40).flat_map(move |step| {
        let shift = f64::from(step) * LINE_HEIGHT;
        [
            (beside + 8.0, middle - shift, true),
            (beside + 8.0, middle + shift, true),
            (before - 8.0, middle - shift, true),
            (before - 8.0, middle + shift, true),
        ]
    });
    near.into_iter()
        .chain(far)
        .map(move |(left, top, far)| Label { left, top, width, far })
}

/// The text of a tick: decimal if short, else scientific.
fn number(tick: f64) -> String {
    if (0.001..100_000.0).contains(&tick) {
        let text = format!("{tick:.4}");
        return text.trim_end_matches('0').trim_end_matches('.').to_owned();
    }
    format!("{tick:.0e}")
}

fn escaped(text: &str) -> String {
    let mut out = String::new();
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            control if control.is_control() => out.push(' '),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_stay_apart_and_inside() {
        let point = |at: usize| Point {
            label: format!("a-codec-of-long-name-{at}"),
            bits: 0.5 + (at % 5) as f64 * 0.02,
            error: 0.3 + (at / 5) as f64 * 0.004,
        };
        let points: Vec<Point> = (0..20).map(point).collect();
        let axis = |low, from, to| Axis::new([low, low * 3.0].into_iter(), from, to);
        let (bits, error) = (axis(0.3, LEFT, WIDTH - RIGHT), axis(0.2, HEIGHT - BOTTOM, TOP));
        let places: Vec<(f64, f64)> = points
            .iter()
            .map(|point| (bits.at(point.bits), error.at(point.error)))
            .collect();
        let labels = place_labels(&points, &places);
        for (at, label) in labels.iter().enumerate() {
            assert!(label.inside(), "{at} {label:?}");
            assert!(
                !labels[..at].iter().any(|other| label.overlaps(other)),
                "{at} {label:?}"
            );
        }
    }

    #[test]
    fn every_axis_has_ticks() {
        for (low, high) in [
            (1.0, 1.0),
            (0.04, 32.0),
            (1e-9, 1.0),
            (0.9, 1.1),
            (4.2, 4.3),
            (1e-30, 1e20),
        ] {
            let ticks = Axis::new([low, high].into_iter(), 0.0, 100.0).ticks();
            assert!((2..=14).contains(&ticks.len()), "{low} {high}: {ticks:?}");
        }
    }

    #[test]
    fn nothing_and_exactness_have_a_picture_and_names_are_escaped() {
        let picture = draw("a & b", &[]);
        assert!(picture.contains("a &amp; b") && picture.ends_with("</svg>\n"));
        let exact = Point {
            label: "<exact>".to_owned(),
            bits: 32.0,
            error: 0.0,
        };
        let picture = draw("", &[exact]);
        assert!(picture.contains("&lt;exact&gt;</text>") && !picture.contains("NaN"));
    }
}
