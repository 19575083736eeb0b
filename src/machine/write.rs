//! Writing a machine as TOML.
