//! Frames of the slice streams.
