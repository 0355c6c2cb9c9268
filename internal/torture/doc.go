// Package torture makes a real server and the boxes of its sessions fail under load: killed at
// random moments and at named points of a turn or, on a disk image, also stopped, with a full
// disk and with its power cut; or killed while it takes and restores snapshots, or while sessions share a workspace
// and its box. Then it checks from the outside that no acknowledged work was lost without a notice, nothing ran twice,
// and nothing was left behind.
//
// Only cmd/holdfast imports it. It imports the vocabulary, child, clock and image; it starts the holdfast binary
// that it is given as a child process. Invariant: it acts only by signals, the disk, the files of sessions and the
// API, and it judges only by what a user of the machine could see: the API, the files in the data directory, and the
// machine's processes, mounts, cgroups and sockets.
package torture
