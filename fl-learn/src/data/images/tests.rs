use std::fs;
use std::path::PathBuf;

use super::*;

/// Files that Pillow has written and decoded: `tests/fixtures/data/make.py`.
fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/data/images")
}

/// The bytes of an array of numpy, in its order.
fn pixels(name: &str) -> Vec<u8> {
    let bytes = fs::read(golden().join(name)).unwrap();
    // numpy pads the header of version 1 to 128 bytes here.
    bytes[128..].to_vec()
}

fn largest_difference(a: &[u8], b: &[u8]) -> u8 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| a.abs_diff(*b)).max().unwrap_or(0)
}

#[test]
fn every_kind_of_file_decodes_to_the_pixels_of_pillow() {
    let mut seen = 0;
    for entry in fs::read_dir(golden()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let is_jpeg = name.ends_with(".jpg") || name.ends_with(".jpeg");
        if !is_jpeg && !name.ends_with(".png") {
            continue;
        }
        let image = decode::decode(&fs::read(golden().join(&name)).unwrap(), Some([19, 26])).unwrap();
        let is_gray = name.starts_with("gray") || name.starts_with("bits");
        assert_eq!(
            (image.height, image.width, image.channels),
            (19, 26, if is_gray { 1 } else { 3 }),
            "{name}"
        );
        // Decoders of JPEG may round differently, and interpolate colors of half the resolution differently at edges.
        let (most, most_mean) = match name.as_str() {
            "color.jpg" | "progressive.jpg" | "restart.jpg" => (32, 1.0),
            _ if is_jpeg => (2, 0.05),
            _ => (0, 0.0),
        };
        let want = pixels(&format!("{name}.npy"));
        let different = largest_difference(&image.pixels, &want);
        let sum: u64 = image
            .pixels
            .iter()
            .zip(&want)
            .map(|(a, b)| u64::from(a.abs_diff(*b)))
            .sum();
        let mean = sum as f64 / want.len() as f64;
        assert!(
            different <= most && mean <= most_mean,
            "{name}: {different}, mean {mean}"
        );
        seen += 1;
    }
    assert_eq!(seen, 13);
}

#[test]
fn gray_and_resized_images_are_those_of_pillow() {
    let color = decode::decode(&fs::read(golden().join("color.png")).unwrap(), None).unwrap();
    let gray = color.clone().with_channels(1);
    assert!(largest_difference(&gray.pixels, &pixels("luma.npy")) <= 1);
    let again = gray.with_channels(3);
    assert!(again.pixels.as_chunks::<3>().0.iter().all(|[r, g, b]| r == g && g == b));
    for (name, size) in [("smaller", [7, 9]), ("larger", [40, 31]), ("mixed", [30, 8])] {
        let resized = resize::resize(&color, size);
        assert_eq!([resized.height, resized.width], size);
        // Pillow rounds between the two passes.
        let different = largest_difference(&resized.pixels, &pixels(&format!("{name}.npy")));
        assert!(different <= 1, "{name}: {different}");
    }
    assert_eq!(resize::resize(&color, [19, 26]), color);
}

#[test]
fn a_changed_or_cut_image_is_decoded_or_refused() {
    for name in [
        "color.png",
        "palette.png",
        "gray16.png",
        "color.jpg",
        "progressive.jpg",
        "gray.jpg",
        "cmyk.jpg",
    ] {
        let whole = fs::read(golden().join(name)).unwrap();
        for len in 0..whole.len() {
            let cut = decode::decode(&whole[..len], None);
            // The last chunk of a PNG file is empty.
            assert!(
                cut.is_err() || name.ends_with("png") && len + 12 >= whole.len(),
                "{name} {len}"
            );
        }
        for at in 0..whole.len() {
            for value in [0, 0xff, whole[at] ^ 1, whole[at] ^ 0x80] {
                let mut changed = whole.clone();
                changed[at] = value;
                if let Ok(image) = decode::decode(&changed, None) {
                    assert_eq!(image.pixels.len(), image.height * image.width * image.channels);
                }
            }
        }
    }
}

#[test]
fn an_absurd_size_is_refused_before_the_pixels_are_allocated() {
    let mut png = fs::read(golden().join("color.png")).unwrap();
    png[16..20].copy_from_slice(&30_000u32.to_be_bytes());
    png[20..24].copy_from_slice(&30_000u32.to_be_bytes());
    assert!(decode::decode(&png, None).is_err());
    let mut jpeg = fs::read(golden().join("gray.jpg")).unwrap();
    let frame = jpeg.windows(2).position(|marker| marker == [0xff, 0xc0]).unwrap();
    jpeg[frame + 5..frame + 9].copy_from_slice(&[0x1f, 0xff, 0x1f, 0xff]);
    let error = decode::decode(&jpeg, None).unwrap_err();
    assert!(error.contains("cannot hold"), "{error}");
    let error = decode::decode(b"GIF89a and more", None).unwrap_err();
    assert!(error.contains("neither PNG nor JPEG"), "{error}");
}

/// A folder of classes, each with copies of golden files.
fn folder(classes: &[(&str, &[(&str, &str)])]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (class, files) in classes {
        fs::create_dir_all(dir.path().join(class)).unwrap();
        for (name, from) in *files {
            fs::copy(golden().join(from), dir.path().join(class).join(name)).unwrap();
        }
    }
    dir
}

/// A black image.
fn gray_png(width: u32, height: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(png::ColorType::Grayscale);
    let mut writer = encoder.write_header().unwrap();
    writer.write_image_data(&vec![0; (width * height) as usize]).unwrap();
    writer.finish().unwrap();
    bytes
}

fn keys(dir: &Path, more: &str) -> Images {
    toml::from_str(&format!("dir = '{}'\n{more}", dir.display())).unwrap()
}

fn refused(dir: &Path, more: &str) -> String {
    let images = keys(dir, more);
    let loaded = DataSet::check(&images).and_then(|()| DataSet::load(&images));
    loaded.map(|data| data.train.len()).unwrap_err().to_string()
}

#[test]
fn folders_are_classes_and_images_become_planes() {
    let dir = folder(&[
        (
            "dog",
            &[
                ("2.png", "color.png"),
                ("1.PNG", "color_alpha.png"),
                (".hidden.png", "gray.png"),
            ],
        ),
        ("cat", &[("a.jpeg", "color444.jpeg")]),
        ("bird", &[]),
    ]);
    fs::write(dir.path().join("README.txt"), "beside the classes").unwrap();
    let data = DataSet::load(&keys(dir.path(), "")).unwrap();
    assert_eq!(data.train.class_names(), ["bird", "cat", "dog"]);
    assert_eq!(data.train.class_counts(), [0, 1, 2]);
    assert_eq!(data.train.input().shape, [3, 19, 26]);
    let batch = data.train.batch(&[2]);
    let have = batch.values.numbers();
    assert_eq!(batch.targets.classes(), [2]);
    let bytes = pixels("color.png.npy");
    for channel in 0..3 {
        for pixel in 0..19 * 26 {
            let want = f32::from(bytes[pixel * 3 + channel]) / 255.0;
            assert!((have[channel * 19 * 26 + pixel] - want).abs() < 1e-6);
        }
    }
}

#[test]
fn folders_whose_names_are_numbers_are_sorted_by_value() {
    let image: &[(&str, &str)] = &[("1.png", "color.png")];
    let dir = folder(&[("10", image), ("2", image), ("1", image)]);
    let data = DataSet::load(&keys(dir.path(), "")).unwrap();
    assert_eq!(data.train.class_names(), ["1", "2", "10"]);
}

#[test]
fn other_sizes_and_colors_are_refused_or_converted() {
    let dir = folder(&[("a", &[("1.png", "color.png"), ("2.png", "gray.png")])]);
    let error = refused(dir.path(), "");
    assert!(
        error.contains("2.png: is gray, but the images before it are in color; set `channels`"),
        "{error}"
    );
    for (channels, resize, shape) in [(1, [8, 8], [1, 8, 8]), (3, [40, 9], [3, 40, 9])] {
        let more = format!("channels = {channels}\nresize = {resize:?}\nmean = 0.5\nstd = 0.25");
        let data = DataSet::load(&keys(dir.path(), &more)).unwrap();
        assert_eq!((data.train.len(), data.train.input().shape), (2, shape));
    }
    fs::write(dir.path().join("a/2.png"), gray_png(25, 19)).unwrap();
    let error = refused(dir.path(), "channels = 3");
    assert!(
        error.contains("a/2.png: is 19x25 (height x width), but the images before it are 19x26"),
        "{error}"
    );
}

#[test]
fn what_is_no_image_of_a_class_is_refused() {
    let dir = folder(&[("a", &[("1.png", "color.png")])]);
    let path = |name: &str| dir.path().join(name);
    fs::write(path("a/notes.txt"), "no image").unwrap();
    assert!(refused(dir.path(), "").contains("a/notes.txt: is no .png"));
    fs::remove_file(path("a/notes.txt")).unwrap();
    fs::copy(golden().join("gray.png"), path("stray.png")).unwrap();
    assert!(refused(dir.path(), "").contains("stray.png: is beside the folders"));
    fs::remove_file(path("stray.png")).unwrap();
    assert!(refused(dir.path(), "classes = ['b']").contains("/a: is none of the classes `b`"));
    fs::write(path("a/2.png"), "text").unwrap();
    assert!(refused(dir.path(), "").contains("a/2.png: is neither PNG nor JPEG"));
    fs::remove_dir_all(path("a")).unwrap();
    assert!(refused(dir.path(), "").contains("holds no image"));
    assert!(refused(&path("none"), "").contains("none: no such file; `dir` must be"));
    for (more, key) in [
        ("resize = [0, 8]", "resize"),
        ("resize = [8, 100000]", "resize"),
        ("channels = 2", "channels"),
        ("classes = ['a', 'a']", "classes"),
        ("test = 2", "test"),
    ] {
        assert!(refused(dir.path(), more).contains(&format!("`{key}`")), "{more}");
    }
}

#[test]
fn a_test_folder_has_the_classes_of_the_training_folder() {
    let dir = folder(&[
        ("train/a", &[("1.png", "color.png")]),
        ("train/b", &[("1.png", "color.png")]),
        ("held/b", &[("1.png", "color.jpg")]),
    ]);
    let more = format!("test_dir = '{}'", dir.path().join("held").display());
    let data = DataSet::load(&keys(&dir.path().join("train"), &more)).unwrap();
    assert_eq!(data.test.class_counts(), [0, 1]);
    // Clients of one process share a set as long as one of them holds it.
    drop(data);
    fs::create_dir(dir.path().join("held/c")).unwrap();
    assert!(refused(&dir.path().join("train"), &more).contains("held/c: is none of the classes"));
}
