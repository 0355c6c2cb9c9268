// Package check refuses, before anything runs, commands, paths and domains that
// sandbox settings do not allow, and says why.
//
// It is an early and explainable refusal, not a boundary: the boundary is the box.
// It refuses what it cannot prove, and lets pass what is only text: quoted strings,
// comments, quoted heredocs, arguments.
//
// It owns the settings (SandboxSettings, by the field names of their JSON), their
// narrowing for child agents, and the reading of bash programs. Policies, the
// engine and cmd import it; it imports the vocabulary and a shell parser.
// Invariant: a Checker does not change after New and may be used by many at once;
// it opens nothing, and of the file system it reads links only, through the FS it
// was given.
package check
