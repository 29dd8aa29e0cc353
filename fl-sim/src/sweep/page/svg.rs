//! Axes and marks of a chart as SVG, without scripts. Colors are classes of the page's style.

use std::fmt::Write as _;

/// Size of a chart and its margins, in units of its view box.
#[derive(Debug, Clone, Copy)]
pub(super) struct Area {
    pub(super) width: f64,
    pub(super) height: f64,
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) top: f64,
    pub(super) bottom: f64,
}

/// A chart of half the page's width.
pub(super) const HALF: Area = Area {
    width: 600.0,
    height: 360.0,
    left: 62.0,
    right: 20.0,
    top: 14.0,
    bottom: 44.0,
};

impl Area {
    /// Horizontal position of a share of the width, 0 to 1.
    pub(super) fn x(&self, share: f64) -> f64 {
        self.left + share * (self.width - self.left - self.right)
    }

    /// Vertical position of a share of the height, 0 at the bottom.
    pub(super) fn y(&self, share: f64) -> f64 {
        self.height - self.bottom - share * (self.height - self.top - self.bottom)
    }
}

/// What an axis shows of its values, and at which of them there is a mark.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Axis {
    low: f64,
    high: f64,
    is_log: bool,
    pub(super) ticks: Vec<(f64, String)>,
}

impl Axis {
    /// A linear axis around `values`; from zero if `from_zero`. Values that are not finite are ignored.
    pub(super) fn linear(values: impl Iterator<Item = f64>, from_zero: bool) -> Self {
        let (low, high) = bounds(values);
        let low = if from_zero { 0.0 } else { low };
        let span = if high > low { high - low } else { high.abs().max(1.0) };
        let step = nice(span / 5.0);
        let (first, last) = (
            (low / step).floor(),
            (high / step).ceil().max((low / step).floor() + 1.0),
        );
        let digits = (-step.log10().floor()).clamp(0.0, 8.0) as usize;
        // At most about ten, because the step is at least a tenth of the span.
        let ticks = (0..=(last - first).min(50.0) as u32).map(|at| (first + f64::from(at)) * step);
        Self {
            low: first * step,
            high: last * step,
            is_log: false,
            ticks: ticks.map(|tick| (tick, format!("{tick:.digits$}"))).collect(),
        }
    }

    /// A logarithmic axis of bytes around `values`, with marks at powers of two.
    pub(super) fn bytes(values: impl Iterator<Item = f64>) -> Self {
        let (low, high) = bounds(values.filter(|value| *value >= 1.0));
        let (low, high) = (low.max(1.0).log2() - 0.3, high.max(1.0).log2() + 0.3);
        let step = [1.0, 2.0, 4.0, 8.0, 16.0]
            .into_iter()
            .find(|step| (high - low) / step <= 8.0);
        let step = step.unwrap_or(32.0);
        let first = (low / step).ceil() as i32;
        let ticks = (first..)
            .map(|at| f64::from(at) * step)
            .take_while(|tick| *tick <= high);
        Self {
            low: low.exp2(),
            high: high.exp2(),
            is_log: true,
            ticks: ticks.map(|tick| (tick.exp2(), binary(tick))).collect(),
        }
    }

    /// Rounds from 1, without fractions.
    pub(super) fn rounds(last: usize) -> Self {
        let step = nice((last as f64 / 8.0).max(1.0)).max(1.0).round() as usize;
        let ticks = std::iter::once(1).chain((step..=last).step_by(step).filter(|at| *at > 1));
        Self {
            low: 1.0,
            high: last.max(2) as f64,
            is_log: false,
            ticks: ticks.map(|tick| (tick as f64, tick.to_string())).collect(),
        }
    }

    /// Where a value is, 0 to 1 within the axis.
    pub(super) fn at(&self, value: f64) -> f64 {
        let scale = |value: f64| if self.is_log { value.max(1.0).log2() } else { value };
        (scale(value) - scale(self.low)) / (scale(self.high) - scale(self.low))
    }
}

fn bounds(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let finite = values.filter(|value| value.is_finite());
    let (low, high) = finite.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
        (low.min(value), high.max(value))
    });
    if low > high { (0.0, 1.0) } else { (low, high) }
}

/// The next number of 1, 2 or 5 times a power of ten.
fn nice(step: f64) -> f64 {
    let power = 10f64.powf(step.log10().floor());
    let factor = [1.0, 2.0, 5.0]
        .into_iter()
        .find(|factor| factor * power >= step * 0.999_999);
    factor.unwrap_or(10.0) * power
}

/// Two to the power of `exponent` bytes.
fn binary(exponent: f64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let unit = ((exponent / 10.0).floor().max(0.0) as usize).min(units.len() - 1);
    format!("{} {}", (exponent - 10.0 * unit as f64).exp2().round(), units[unit])
}

/// Begins a chart with its grid and both axes. The caller appends its marks and [`END`].
pub(super) fn begin(area: &Area, x: &Axis, y: &Axis, [x_name, y_name]: [&str; 2], about: &str) -> String {
    let mut out = format!(
        "<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">\n",
        area.width,
        area.height,
        escape(about)
    );
    let (bottom, right) = (area.y(0.0), area.x(1.0));
    for (value, text) in &y.ticks {
        let at = area.y(y.at(*value));
        let _ = writeln!(
            out,
            "<path class=\"grid\" d=\"M{:.1} {at:.1}H{right:.1}\"/><text class=\"tick end\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            area.left,
            area.left - 8.0,
            at + 4.0,
            escape(text)
        );
    }
    for (value, text) in &x.ticks {
        let at = area.x(x.at(*value));
        let _ = writeln!(
            out,
            "<path class=\"axis\" d=\"M{at:.1} {bottom:.1}v4\"/><text class=\"tick middle\" x=\"{at:.1}\" y=\"{:.1}\">{}</text>",
            bottom + 18.0,
            escape(text)
        );
    }
    let _ = writeln!(
        out,
        "<path class=\"axis\" d=\"M{:.1} {bottom:.1}H{right:.1}\"/>\
         <text class=\"name middle\" x=\"{:.1}\" y=\"{:.1}\">{}</text>\
         <text class=\"name middle\" transform=\"translate(14 {:.1}) rotate(-90)\">{}</text>",
        area.left,
        area.x(0.5),
        area.height - 6.0,
        escape(x_name),
        area.y(0.5),
        escape(y_name)
    );
    out
}

/// Ends a chart.
pub(super) const END: &str = "</svg>\n";

/// Text for an element or an attribute.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// The class of the color of the series at `index`.
pub(super) fn series(index: usize) -> String {
    format!("s{}", index % super::section::COLORS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_round_numbers_around_the_values() {
        let axis = Axis::linear([83.1, 85.9].into_iter(), false);
        let texts: Vec<&str> = axis.ticks.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(texts, ["83", "84", "85", "86"]);
        assert!(axis.at(83.1) > 0.0 && axis.at(85.9) < 1.0);
        let axis = Axis::bytes([90_000.0, 10_000_000.0].into_iter());
        let texts: Vec<&str> = axis.ticks.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(
            texts,
            ["128 KiB", "256 KiB", "512 KiB", "1 MiB", "2 MiB", "4 MiB", "8 MiB"]
        );
        assert_eq!(Axis::rounds(20).ticks.len(), 5);
    }

    #[test]
    fn odd_values_make_an_axis_too() {
        for values in [
            vec![],
            vec![f64::NAN],
            vec![0.0],
            vec![5.0, 5.0],
            vec![-1e300, 1e300],
            vec![1e-12],
        ] {
            let axis = Axis::linear(values.iter().copied(), false);
            assert!((1..60).contains(&axis.ticks.len()), "{values:?}: {axis:?}");
            assert!(axis.at(0.5).is_finite(), "{values:?}");
            let axis = Axis::bytes(values.iter().copied());
            assert!(
                axis.ticks.len() < 60 && axis.at(0.5).is_finite(),
                "{values:?}: {axis:?}"
            );
        }
        assert!(Axis::rounds(0).at(1.0).is_finite());
    }

    #[test]
    fn no_text_closes_an_element() {
        assert_eq!(escape("<a href=\"x\">&"), "&lt;a href=&quot;x&quot;&gt;&amp;");
    }
}
