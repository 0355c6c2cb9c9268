// Package local is the driver that makes a box out of Linux namespaces, without
// any program but our own: the default driver.
//
// Only internal/app imports it. It starts boxd (internal/boxd, through
// internal/driver/boxproc) in seven new namespaces, hands it the mounts of its
// root by descriptor, and puts it and its tools into two cgroup leaves. Invariant (I-18):
// whatever a box needs outside of its namespaces (record, socket, cgroups) is
// written down before it exists, so that a server killed at any moment leaves
// nothing that the next one cannot find and end; and no host uid 0 is ever
// mapped into a box (HZ-8). A ready boot (Prewarm) is no box: it has namespaces, a
// cgroup and a file that names it, no ids yet, and ends with its server.
package local
