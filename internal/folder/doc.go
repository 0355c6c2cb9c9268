// Package folder reads what an agent brings under .claude for its runtimes (skills,
// commands, sub-agents, output styles), and the instructions of a workspace.
//
// internal/agents reads and stages a version's folder, the engine reads a workspace's;
// the runtimes get a Folder with each turn. It imports rooted and the vocabulary. Invariants: of a file's frontmatter only keys on a list are passed on, so
// that no hook, permission, server, model or command comes along; a file that cannot be
// read whole is left out, and a notice says so; files of any content cost bounded time
// and memory.
package folder
