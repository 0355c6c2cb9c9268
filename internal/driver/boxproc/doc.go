// Package boxproc is the part that the drivers share that run boxd as a process of this machine:
// the record of a box on disk, the socket on which boxd listens, its start, and the proof that a
// process is still the one that was recorded.
//
// Only driver/local and driver/host import it; it imports the vocabulary and
// the wire protocol. Invariant: boxd gets its configuration only after its record is on disk, so
// a server killed at any moment leaves either a recorded box or a boxd that ends by itself; and a
// process is signalled only if its start time and the kernel's boot id are those of the record,
// so that a reused pid is never taken for a box.
package boxproc
