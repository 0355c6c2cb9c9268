// Package local is the driver that makes a box out of Linux namespaces, without
// any program but our own: the default driver.
//
// Only internal/app imports it. It starts boxd (internal/boxd, through
// internal/driver/boxproc) in seven new namespaces, hands it the mounts of its
// root by descriptor, and puts it and its tools into two cgroup leaves. Invariant (I-18):
// whatever a box needs outside of its namespaces (record, socket, cgroups) is
// written down before it exists, so that a server killed at any moment leaves
// nothing that the next one cannot find and end; and no host uid 0 is ever
// mapped into a box (HZ-8). A ready boot (Prewarm) is a box in all but name: walls,
// limits, ids and directories are its own, a file names it, and it ends with its
// server unless a new session has become its owner.
package local
