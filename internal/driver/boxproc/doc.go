// Package boxproc holds what is common to the drivers that run boxd as a process on this machine: the record of a box
// on disk, the socket on which boxd listens, its start, and the proof that a process is still the one that was
// recorded.
//
// driver/local, driver/host and app import it; it imports the vocabulary, sandbox and the wire protocol. Invariant:
// boxd learns which box it is only after the record of that box is on disk, so a server killed at any moment leaves
// either a recorded box or a boxd that ends by itself; and a recorded process is signalled only if its start time and
// the kernel's boot id are those of the record, so that a reused pid is never taken for a box.
package boxproc
