//! Records: traces of passes, observations, flows; and their CSV.
