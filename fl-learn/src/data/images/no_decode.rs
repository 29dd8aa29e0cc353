//! Images in a program that is built without the feature `images`.

use super::image::Image;

pub(super) fn decode(_: &[u8], _: Option<[usize; 2]>) -> Result<Image, String> {
    Err("this program was built without images; build it with `--features images`".to_owned())
}
