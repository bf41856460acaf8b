//! Which processes and mappings exist, and which object and offset an address belongs to.
