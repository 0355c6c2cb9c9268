// Package local is the default driver: it makes a box out of Linux namespaces, without any program but our own.
//
// Only internal/app and internal/bench import it. It starts boxd (internal/boxd, through internal/driver/boxproc) in
// seven new namespaces, hands it the mounts of its root by descriptor, and puts it and its tools into two cgroup
// leaves. Invariant (I-18): whatever a box needs outside of its namespaces (record, socket, cgroups) is recorded before
// it exists, so that the next server can find and end everything that a server left that was killed at any moment; and
// host uid 0 is never mapped into a box (HZ-8). A ready boot (Prewarm) is a box without a box id: it has namespaces,
// limits, ids and directories of its own, a file names it, and it ends with its server unless it became the box of a
// session.
package local
