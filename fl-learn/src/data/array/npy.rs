//! The header of numpy's npy files, versions 1 to 3: magic bytes, version, and a Python dictionary.

use super::element::Element;
use super::header::Header;
use crate::data::error::Error;
use crate::data::files::DataFile;

/// Longest dictionary that is read, in bytes. numpy refuses more than 10,000 by default.
const MAX_HEADER: u64 = 1 << 16;
const WHAT: &str = "npy header";

/// Reads the header; the values follow.
pub(crate) fn header(file: &mut DataFile) -> Result<Header, Error> {
    let start = file.take(8, WHAT)?;
    let &[0x93, b'N', b'U', b'M', b'P', b'Y', major, _] = start.as_slice() else {
        let why = format!("no npy file: it begins with {:02x?}; write it with numpy.save", &start);
        return Err(Error::malformed(&file.path, why));
    };
    let len = match major {
        1 => u64::from(u16::from_le_bytes(exactly(&file.take(2, WHAT)?))),
        2 | 3 => u64::from(u32::from_le_bytes(exactly(&file.take(4, WHAT)?))),
        _ => {
            let why = format!("npy version {major}; versions 1 to 3 can be read");
            return Err(Error::malformed(&file.path, why));
        }
    };
    if len > MAX_HEADER {
        let why = format!("a npy header of {len} bytes; at most {MAX_HEADER} are read");
        return Err(Error::malformed(&file.path, why));
    }
    let text = file.take(len, WHAT)?;
    let parsed = Parser(&text).dictionary().and_then(Dictionary::checked);
    parsed.map_err(|why| Error::malformed(&file.path, format!("npy header: {why}")))
}

/// `bytes` as an array; zeros beyond their end, which `take` has excluded.
fn exactly<const N: usize>(bytes: &[u8]) -> [u8; N] {
    std::array::from_fn(|at| bytes.get(at).copied().unwrap_or_default())
}

/// The three entries of the dictionary.
#[derive(Default)]
struct Dictionary {
    descr: Option<String>,
    fortran: Option<bool>,
    shape: Option<Vec<u64>>,
}

impl Dictionary {
    fn checked(self) -> Result<Header, String> {
        let descr = self.descr.ok_or("`descr` is missing")?;
        let fortran = self.fortran.ok_or("`fortran_order` is missing")?;
        let shape = self.shape.ok_or("`shape` is missing")?;
        let Some(element) = Element::of_npy(&descr) else {
            let convert = match descr.as_bytes().first() {
                Some(b'>') => "save it little-endian, with .astype(a.dtype.newbyteorder('<'))",
                _ => "convert it, for example with .astype('float32')",
            };
            return Err(format!("the type `{descr}` is not supported; {convert}"));
        };
        if fortran && shape.len() > 1 {
            return Err("the array is in Fortran order; save numpy.ascontiguousarray(a)".to_owned());
        }
        Header::new(element, shape)
    }
}

/// What is left of the header's text. Python's literals, as far as numpy writes them.
struct Parser<'a>(&'a [u8]);

impl Parser<'_> {
    fn dictionary(mut self) -> Result<Dictionary, String> {
        let mut found = Dictionary::default();
        self.expect(b'{')?;
        while !self.skip(b'}') {
            let key = self.string()?;
            self.expect(b':')?;
            let twice = match key.as_str() {
                "descr" => found.descr.replace(self.descr()?).is_some(),
                "fortran_order" => found.fortran.replace(self.boolean()?).is_some(),
                "shape" => found.shape.replace(self.tuple()?).is_some(),
                _ => return Err(format!("unknown key `{key}`")),
            };
            if twice {
                return Err(format!("`{key}` occurs twice"));
            }
            if !self.skip(b',') {
                self.expect(b'}')?;
                break;
            }
        }
        self.space();
        match self.0.first() {
            None => Ok(found),
            Some(_) => Err(format!("unexpected `{}` after its end", self.shown())),
        }
    }

    fn descr(&mut self) -> Result<String, String> {
        self.space();
        if self.0.first() == Some(&b'[') {
            return Err("the array has named fields; save one field, such as a['x']".to_owned());
        }
        self.string()
    }

    fn string(&mut self) -> Result<String, String> {
        self.space();
        let &[quote @ (b'\'' | b'"'), ref rest @ ..] = self.0 else {
            return Err(format!("expected a string at `{}`", self.shown()));
        };
        let end = rest.iter().position(|&b| b == quote).ok_or("a string without an end")?;
        let text = std::str::from_utf8(&rest[..end]).map_err(|_| "a string that is not UTF-8")?;
        self.0 = &rest[end + 1..];
        Ok(text.to_owned())
    }

    fn boolean(&mut self) -> Result<bool, String> {
        self.space();
        for (word, value) in [(&b"True"[..], true), (b"False", false)] {
            if let Some(rest) = self.0.strip_prefix(word) {
                self.0 = rest;
                return Ok(value);
            }
        }
        Err(format!("expected True or False at `{}`", self.shown()))
    }

    fn tuple(&mut self) -> Result<Vec<u64>, String> {
        let mut extents = Vec::new();
        self.expect(b'(')?;
        while !self.skip(b')') {
            extents.push(self.integer()?);
            if !self.skip(b',') {
                self.expect(b')')?;
                break;
            }
        }
        Ok(extents)
    }

    fn integer(&mut self) -> Result<u64, String> {
        self.space();
        let digits = self.0.iter().take_while(|b| b.is_ascii_digit()).count();
        let (number, rest) = self.0.split_at(digits);
        let value = std::str::from_utf8(number).ok().and_then(|text| text.parse().ok());
        let value = value.ok_or_else(|| format!("expected an extent at `{}`", self.shown()))?;
        // Python 2 wrote long integers so.
        self.0 = rest.strip_prefix(b"L").unwrap_or(rest);
        Ok(value)
    }

    fn expect(&mut self, byte: u8) -> Result<(), String> {
        if self.skip(byte) {
            return Ok(());
        }
        Err(format!("expected `{}` at `{}`", char::from(byte), self.shown()))
    }

    fn skip(&mut self, byte: u8) -> bool {
        self.space();
        match self.0.strip_prefix(&[byte]) {
            Some(rest) => {
                self.0 = rest;
                true
            }
            None => false,
        }
    }

    fn space(&mut self) {
        self.0 = self.0.trim_ascii_start();
    }

    fn shown(&self) -> String {
        self.0[..self.0.len().min(20)].escape_ascii().to_string()
    }
}
