//! Files that are often given in the place of safetensors, by their first bytes.

/// Files of `torch.save`: a zip since PyTorch 1.6, a pickle before.
const TORCH: [(&[u8], &str); 2] = [
    (b"PK\x03\x04", "a zip"),
    (b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46", "a pickle"),
];

/// What `bytes` seem to be instead of safetensors, and what to do; `None` if that cannot be told.
pub(crate) fn explained(bytes: &[u8]) -> Option<String> {
    let (_, form) = TORCH.iter().find(|(start, _)| bytes.starts_with(start))?;
    Some(format!(
        "this is {form} as PyTorch's torch.save writes, not safetensors; save the tensors with: import torch; from \
         safetensors.torch import save_file; save_file({{k: v.contiguous() for k, v in \
         torch.load('model.pt', weights_only=True).items()}}, 'model.safetensors')"
    ))
}
