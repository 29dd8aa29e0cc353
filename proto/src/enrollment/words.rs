//! Six words by which two people compare a key.

use ring::digest::{SHA256, digest};

use crate::fingerprint::Fingerprint;

/// Six words of a device's public key and the federation's authority: 48 bits. The device and the server show the same ones,
/// and an operator who approves an enrollment compares them.
pub fn approval_words(key: &Fingerprint, authority: &Fingerprint) -> String {
    let content = [&b"fl approval words\n"[..], &key.0, &authority.0].concat();
    let digest = digest(&SHA256, &content);
    let words = digest.as_ref().iter().take(6).map(|&byte| WORDS[usize::from(byte)]);
    words.collect::<Vec<_>>().join(" ")
}

// One word for each value of a byte.
#[rustfmt::skip]
const WORDS: [&str; 256] = [
    "acorn", "actor", "album", "alley", "amber", "anchor", "angel", "apple", "april", "apron", "arena", "arrow",
    "aspen", "atlas", "attic", "autumn", "badge", "bagel", "baker", "bamboo", "banjo", "barrel", "basil", "basket",
    "beacon", "beaver", "bench", "berry", "birch", "blanket", "bottle", "breeze", "bridge", "bronze", "bucket",
    "butter", "button", "cabin", "cactus", "camel", "camera", "candle", "canoe", "canyon", "carbon", "carpet",
    "castle", "cedar", "cellar", "cement", "cherry", "chess", "chimney", "cider", "cinema", "circle", "citrus",
    "clover", "cobalt", "coffee", "comet", "copper", "coral", "cotton", "cradle", "crater", "crayon", "cricket",
    "crystal", "curtain", "dagger", "daisy", "dancer", "desert", "diamond", "dinner", "dolphin", "domino", "donkey",
    "dragon", "drawer", "eagle", "easel", "echo", "eclipse", "elbow", "elder", "emerald", "engine", "falcon",
    "feather", "fender", "ferry", "fiddle", "finger", "flute", "forest", "fossil", "fountain", "fox", "galaxy",
    "garden", "garlic", "gazelle", "ginger", "giraffe", "glacier", "glove", "goblet", "granite", "grape", "guitar",
    "hammer", "harbor", "hazel", "helmet", "hermit", "heron", "hockey", "hollow", "honey", "hornet", "hotel",
    "iguana", "indigo", "island", "ivory", "jacket", "jaguar", "jasmine", "jelly", "jigsaw", "jockey", "jungle",
    "juniper", "kettle", "kitchen", "kiwi", "ladder", "lagoon", "lantern", "laptop", "lemon", "leopard", "lettuce",
    "lily", "linen", "lizard", "lobster", "locket", "lotus", "lumber", "magnet", "mango", "maple", "marble",
    "market", "meadow", "melon", "mercury", "meteor", "mirror", "mitten", "monkey", "mosaic", "motor", "muffin",
    "museum", "napkin", "nectar", "needle", "nickel", "noodle", "nutmeg", "oasis", "ocean", "olive", "onion",
    "opera", "orange", "orbit", "orchid", "otter", "oxygen", "oyster", "paddle", "palace", "panda", "panther",
    "parade", "parrot", "pebble", "pelican", "pencil", "pepper", "piano", "picnic", "pigeon", "pillow", "pirate",
    "planet", "pocket", "polar", "poppy", "prism", "puzzle", "quartz", "rabbit", "radar", "radish", "raven",
    "ribbon", "river", "robin", "rocket", "rubber", "saddle", "salmon", "sandal", "saturn", "scarf", "shadow",
    "shovel", "silver", "sleigh", "sonnet", "spider", "spiral", "sponge", "squash", "stable", "sunset", "tablet",
    "tango", "teapot", "temple", "thimble", "thunder", "ticket", "tiger", "timber", "tomato", "torch", "tulip",
    "tunnel", "turtle", "velvet", "violin", "walnut", "whale", "willow", "window", "wizard", "yellow", "zebra",
    "zipper",
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn words_differ_in_more_than_their_ends() {
        assert_eq!(WORDS.iter().collect::<BTreeSet<_>>().len(), 256);
        assert!(
            WORDS
                .iter()
                .all(|word| (3..=8).contains(&word.len()) && word.bytes().all(|c| c.is_ascii_lowercase()))
        );
    }

    #[test]
    fn another_key_or_authority_has_other_words() {
        let [a, b] = [[1; 32], [2; 32]].map(Fingerprint);
        let words = approval_words(&a, &b);
        assert_eq!(words.split(' ').count(), 6);
        assert_ne!(words, approval_words(&b, &a));
        assert_eq!(words, approval_words(&a, &b));
    }
}
