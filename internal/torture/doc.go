// Package torture kills a real server and the boxes of its sessions under load, at random moments
// and at named points of a turn. Then it checks from the outside that nothing acknowledged was
// lost, nothing ran twice, and nothing was left behind.
//
// cmd/holdfast and tests use it. It imports the client and the vocabulary; it
// starts the holdfast binary it is given as a child process. Invariant: it
// judges only by what a user could see: the API, the files of the workspace, and
// the machine's processes, mounts, cgroups and sockets.
package torture
