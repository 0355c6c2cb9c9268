// Package torture makes a real server and the boxes of its sessions fail under load: killed at
// random moments and at named points of a turn or, on a disk image, also stopped, with a full
// disk and with its power cut; or killed while it takes and restores snapshots, or while sessions share a workspace
// and its box. Then it checks from the outside that nothing acknowledged was lost untold, nothing ran twice, and
// nothing was left behind.
//
// cmd/holdfast and tests use it. It imports the client and the vocabulary; it starts the holdfast
// binary that it is given as a child process. Invariant: it acts only by signals, the disk and the
// API, and it judges only by what a user could see: the API, the files of the workspace, and the
// machine's processes, mounts, cgroups and sockets.
package torture
