//! The named codecs of `configs/presets`.

use std::fmt::Write as _;

use fl_compress::Preset;
use serde::Serialize;

#[derive(Debug, Clone, Serialize)]
pub(crate) struct PresetLine {
    name: &'static str,
    about: String,
    source: String,
}

pub(crate) fn all() -> Vec<PresetLine> {
    let lines = Preset::ALL.iter().map(|preset| PresetLine {
        name: preset.name(),
        about: preset.about(),
        source: preset.source(),
    });
    lines.collect()
}

/// A paragraph for each preset: its name, what it is, and where it comes from.
pub(crate) fn text(presets: &[PresetLine]) -> String {
    let mut out = String::new();
    for PresetLine { name, about, source } in presets {
        let _ = writeln!(out, "{name}\n    {about}\n    {source}");
    }
    out.push_str("Use one with `preset = \"NAME\"` in [compression.uplink] or [compression.downlink].");
    out
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_preset_is_listed_with_its_source() {
        let presets = super::all();
        assert_eq!(presets.len(), fl_compress::Preset::ALL.len());
        let text = super::text(&presets);
        assert!(
            text.contains("edgc\n    EDGC: low rank") && text.contains("arXiv 2511.10333"),
            "{text}"
        );
    }
}
