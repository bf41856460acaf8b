//! Functions of our own to put probes on: one for each class of instruction, and the places they have in our executable.
