//! Recognizes files that users often pass instead of safetensors, by their first bytes.

// First bytes of `torch.save`: a zip since PyTorch 1.6, a pickle before.
const TORCH: [(&[u8], &str); 2] = [
    (b"PK\x03\x04", "a zip"),
    (b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46", "a pickle"),
];

/// Names the format of `bytes` and how to convert it; `None` if the format is unknown.
pub(crate) fn explained(bytes: &[u8]) -> Option<String> {
    let (_, form) = TORCH.iter().find(|(start, _)| bytes.starts_with(start))?;
    Some(format!(
        "the file is {form} written by PyTorch's torch.save, not safetensors; convert it with: import torch; from \
         safetensors.torch import save_file; save_file({{k: v.contiguous() for k, v in \
         torch.load('model.pt', weights_only=True).items()}}, 'model.safetensors')"
    ))
}
