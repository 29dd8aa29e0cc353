//! Small files of each format that claim or unpack to much more than a machine has: an error that names the file, within the memory
//! that the process may take.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use fl_learn::data::DataSource;

/// The data set that a child process reads; see [`as_a_child`].
const SET: &str = "FL_TEST_BOMB";
/// Address space of the child, in KiB.
const MOST: u64 = 3 * 1024 * 1024;

/// In a process of its own, because a limit of memory is one of a process.
#[test]
fn as_a_child() {
    let Some(set) = std::env::var_os(SET) else { return };
    let set: DataSource = toml::from_str(&std::fs::read_to_string(set).unwrap()).unwrap();
    let error = set.load().unwrap_err();
    println!("refused: {error}");
}

/// What a child says of a data set.
fn refusal(dir: &Path, set: &str) -> String {
    let file = dir.join("set.toml");
    std::fs::write(&file, set.replace("DIR", dir.to_str().unwrap())).unwrap();
    let own = std::env::current_exe().unwrap();
    let done = Command::new("sh")
        .args([
            "-c",
            &format!("ulimit -v {MOST}; exec \"$0\" --exact bombs::as_a_child --nocapture"),
        ])
        .arg(own)
        .env(SET, &file)
        .env("RUST_MIN_STACK", "2000000")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(
        done.status.success(),
        "{set}: {said}\n{}",
        String::from_utf8_lossy(&done.stderr)
    );
    said.lines()
        .find_map(|line| line.strip_prefix("refused: "))
        .unwrap_or_else(|| panic!("{said}"))
        .to_owned()
}

/// `times` mebibytes of `piece`, packed.
fn gzip(path: &Path, begin: &[u8], piece: u8, times: usize) {
    let mut packer = flate2::write::GzEncoder::new(File::create(path).unwrap(), flate2::Compression::fast());
    packer.write_all(begin).unwrap();
    for _ in 0..times {
        packer.write_all(&vec![piece; 1 << 20]).unwrap();
    }
    packer.finish().unwrap();
}

#[test]
fn a_small_file_that_claims_much_is_an_error_within_bounded_memory() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let write = |name: &str, bytes: &[u8]| std::fs::write(at(name), bytes).unwrap();
    let says = |set: &str, part: &str| {
        let said = refusal(dir.path(), set);
        assert!(said.contains(part), "{set}: {said}");
    };
    let csv = "[csv]\nfile = 'DIR/NAME.csv'\nlabel = 'y'\ntest = 0.5\n";
    // A first line, a row and a quote without an end.
    for (name, begin) in [("line", ""), ("row", "x,y\n1,"), ("quote", "x,y\n1,\"")] {
        gzip(&at(&format!("{name}.csv.gz")), begin.as_bytes(), b'7', 300);
        says(&csv.replace("NAME", name), "more than 16 MiB");
    }
    let mut wide: String = (0..60_000).map(|n| format!("c{n},")).collect();
    wide.push_str("c7,y\n");
    write("wide.csv", wide.as_bytes());
    says(&csv.replace("NAME", "wide"), "`c7` occurs twice");
    // A text, in bytes and in words.
    gzip(&at("long.txt.gz"), b"", b'a', 1_100);
    for vocabulary in ["bytes", "words"] {
        let text = format!("[text]\nfile = 'DIR/long.txt'\nvocabulary = '{vocabulary}'\ntest = 0.5\n");
        says(&text, "the most that are read");
    }
    // Arrays that say that they are larger than they are.
    let npy = |of: &str, shape: &str| {
        let mut head = format!("{{'descr': '{of}', 'fortran_order': False, 'shape': ({shape},), }}");
        head.push_str(&" ".repeat(118 - head.len()));
        [b"\x93NUMPY\x01\x00\x76\x00".as_slice(), head.as_bytes()].concat()
    };
    let arrays = "[arrays]\ndir = 'DIR'\nx = 'FILE'\ny = 'y.npy'\ntest = 0.5\n";
    write("y.npy", &[npy("|u1", "4"), vec![0, 1, 0, 1]].concat());
    write("huge.npy", &npy("<f4", "1099511627776, 784"));
    says(&arrays.replace("FILE", "huge.npy"), "huge.npy");
    gzip(&at("packed.npy.gz"), &npy("<f4", "4000000000"), 0, 300);
    says(&arrays.replace("FILE", "packed.npy"), "packed.npy");
    write("head.safetensors", &[&u64::MAX.to_le_bytes()[..], b"{}"].concat());
    says(&arrays.replace("FILE", "head.safetensors:x"), "head.safetensors");
    let far = br#"{"x":{"dtype":"F32","shape":[1099511627776],"data_offsets":[0,4398046511104]}}"#;
    write(
        "far.safetensors",
        &[&(far.len() as u64).to_le_bytes()[..], far].concat(),
    );
    says(&arrays.replace("FILE", "far.safetensors:x"), "far.safetensors");
    // Images of MNIST: four numbers at the beginning.
    let idx = [
        [0, 0, 8, 3],
        [0x7f, 0xff, 0xff, 0xff],
        [0, 0, 0xff, 0xff],
        [0, 0, 0xff, 0xff],
    ]
    .concat();
    gzip(&at("train-images-idx3-ubyte.gz"), &idx, 0, 300);
    says("[idx]\ndir = 'DIR'\n", "train-images-idx3-ubyte");
    // A PNG of 4 billion pixels, whose data would come.
    let mut png = b"\x89PNG\r\n\x1a\n".to_vec();
    let mut header = b"IHDR".to_vec();
    header.extend([65_535u32.to_be_bytes(), 65_535u32.to_be_bytes()].concat());
    header.extend([16, 6, 0, 0, 0]);
    let check = {
        let mut check = flate2::Crc::new();
        check.update(&header);
        check.sum()
    };
    png.extend(13u32.to_be_bytes());
    png.extend(&header);
    png.extend(check.to_be_bytes());
    for class in ["a", "b"] {
        std::fs::create_dir_all(at("images").join(class)).unwrap();
        std::fs::write(at("images").join(class).join("1.png"), &png).unwrap();
    }
    says("[images]\ndir = 'DIR/images'\ntest = 0.5\n", "1.png");
}

#[test]
fn a_tokenizer_that_claims_or_makes_much_is_an_error_within_bounded_memory() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tokenizer.json");
    std::fs::write(dir.path().join("own.txt"), "a".repeat(1 << 20)).unwrap();
    let says = |tokenizer: &[u8], part: &str| {
        std::fs::write(&file, tokenizer).unwrap();
        let set = "[text]\nfile = 'DIR/own.txt'\nvocabulary = { tokenizer = 'DIR' }\ntest = 0.5\n";
        let said = refusal(dir.path(), set);
        assert!(said.contains("tokenizer.json") && said.contains(part), "{said}");
    };
    let with = |part: &str, value: &str| {
        let file = r#"{"version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
            "pre_tokenizer": null, "post_processor": null, "decoder": null,
            "model": {"type": "WordLevel", "vocab": {"<unk>": 0, "a": TOP}, "unk_token": "<unk>"}}"#;
        let file = file.replace(part, value).replace("TOP", "1");
        file.into_bytes()
    };
    // A text of a mebibyte would become one of a tebibyte, at once or by forty steps.
    let replace =
        |content: &str| format!(r#"{{"type": "Replace", "pattern": {{"String": "a"}}, "content": "{content}"}}"#);
    let long = format!(r#""normalizer": {}"#, replace(&"a".repeat(1 << 20)));
    says(&with(r#""normalizer": null"#, &long), "as long");
    let steps = vec![replace("aa"); 40].join(",");
    let steps = format!(r#""normalizer": {{"type": "Sequence", "normalizers": [{steps}]}}"#);
    says(&with(r#""normalizer": null"#, &steps), "as long");
    // Steps without a replacement, before and after the text is divided; matches of nothing; one character for many.
    let sequence = |of: &str, steps: &str| format!(r#""{of}": {{"type": "Sequence", "{of}s": [{steps}]}}"#);
    let bytes = r#"{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false}"#;
    let bytes = [bytes; 30].join(",");
    std::fs::write(dir.path().join("own.txt"), "é".repeat(1 << 10)).unwrap();
    says(
        &with(
            r#""normalizer": null"#,
            &sequence("normalizer", &bytes.replace("false", "true")),
        ),
        "as long",
    );
    let divided = sequence("pretokenizer", &bytes).replacen("pretokenizer", "pre_tokenizer", 1);
    says(&with(r#""pre_tokenizer": null"#, &divided), "as long");
    for pattern in [r#"{"String": ""}"#, r#"{"Regex": "(?=.)"}"#] {
        let step = format!(r#"{{"type": "Replace", "pattern": {pattern}, "content": "e"}}"#);
        says(
            &with(
                r#""normalizer": null"#,
                &sequence("normalizer", &vec![step; 30].join(",")),
            ),
            "as long",
        );
    }
    let wide = r#"{"type": "Replace", "pattern": {"Regex": "."}, "content": "\ufdfa"}, {"type": "NFKD"}"#;
    says(
        &with(r#""normalizer": null"#, &sequence("normalizer", &[wide; 3].join(","))),
        "as long",
    );
    // The highest number of a token is the size of the vocabulary.
    says(&with("TOP", "4294967295"), "a vocabulary has 1 to");
    let deep = format!(r#"{{"normalizer": {}"#, "[".repeat(60 << 20));
    says(deep.as_bytes(), "recursion limit exceeded");
    std::fs::File::create(&file).unwrap().set_len(1 << 40).unwrap();
    let sparse = refusal(
        dir.path(),
        "[text]\nfile = 'DIR/own.txt'\nvocabulary = { tokenizer = 'DIR' }\ntest = 0.5\n",
    );
    assert!(sparse.contains("the most that are read"), "{sparse}");
}
