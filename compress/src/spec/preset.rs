//! Named specs: `preset = ".."` in place of the keys that it sets. Each is a file of `configs/presets`, and one line here.

use serde::{Deserialize, Serialize};

/// Generates [`Preset`] from its files. Each line is `Variant = "name"`.
macro_rules! presets {
    ($($(#[$meta:meta])* $variant:ident = $name:literal,)*) => {
        /// A spec by name. Keys beside it replace what they name.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
        pub enum Preset {
            $(
                $(#[$meta])*
                #[serde(rename = $name)]
                #[doc = concat!("`configs/presets/", $name, ".toml`.")]
                $variant,
            )*
        }

        impl Preset {
            /// Every preset, in the order of lists.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// Name in TOML.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// Its file: comments (what it is; its source, and what that claims), then the keys of a spec.
            pub fn text(self) -> &'static str {
                match self {
                    $(Self::$variant => include_str!(concat!("../../../configs/presets/", $name, ".toml")),)*
                }
            }
        }
    };
}

presets! {
    Default = "default",
    Extreme = "extreme",
    AgcEntropy = "agc-entropy",
    AgcFisher = "agc-fisher",
    Edgc = "edgc",
    Hybrid = "hybrid",
    Stc = "stc",
    Qsgd = "qsgd",
    Dgc = "dgc",
    Powersgd = "powersgd",
    Sparseloco = "sparseloco",
    #[serde(alias = "exact")]
    FedavgFp32 = "fedavg-fp32",
}

impl Preset {
    /// What it is, in words: the comment before the source.
    pub fn about(self) -> String {
        self.comment().split(" Source: ").next().unwrap_or_default().to_owned()
    }

    /// Where it comes from, and what is claimed there.
    pub fn source(self) -> String {
        let comment = self.comment();
        comment
            .split_once(" Source: ")
            .map_or_else(String::new, |(_, source)| source.to_owned())
    }

    fn comment(self) -> String {
        let lines = self.text().lines().map_while(|line| line.strip_prefix('#'));
        lines.map(str::trim).collect::<Vec<_>>().join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Spec;
    use crate::memory::method::Encodes;

    #[test]
    fn every_file_is_a_spec_that_says_its_source() {
        for &preset in Preset::ALL {
            let spec = Spec::preset(preset).unwrap_or_else(|error| panic!("{}: {error}", preset.name()));
            assert!(
                preset.about().len() > 20 && preset.source().len() > 5,
                "{}",
                preset.name()
            );
            assert!(!preset.text().contains("\npreset"), "{}", preset.name());
            // One line of a run.
            let line = format!("preset = '{}'", preset.name());
            assert_eq!(toml::from_str(&line), Ok(spec), "{line}");
        }
        assert_eq!(Spec::preset(Preset::Default), Ok(Spec::default()));
        assert_eq!(Spec::preset(Preset::FedavgFp32), Ok(Spec::exact()));
        assert_eq!(toml::from_str("preset = 'exact'"), Ok(Spec::exact()));
        let momenta = Preset::ALL
            .iter()
            .filter(|preset| Spec::preset(**preset).unwrap().memory.info().encodes == Encodes::Momenta);
        assert_eq!(momenta.count(), 1, "only dgc is for updates alone");
    }

    #[test]
    fn the_folder_has_no_other_file() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../configs/presets");
        let mut found: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|file| file.unwrap().file_name().into_string().unwrap())
            .collect();
        let mut named: Vec<String> = Preset::ALL
            .iter()
            .map(|preset| format!("{}.toml", preset.name()))
            .collect();
        found.sort();
        named.sort();
        assert_eq!(found, named);
    }
}
