// Package folder reads the files under .claude that an agent brings for its runtimes (skills,
// commands, sub-agents, output styles), and the instructions of a workspace.
//
// internal/agents reads and stages a version's folder, the engine reads a workspace's; the runtimes get a Folder with
// each turn. It imports rooted, clip and the root package. Invariants: only listed keys of a file's frontmatter are
// passed on, so that a file brings no hook, permission, server, model or command; a file that cannot be read completely
// is left out, and a notice or the instructions say so; files of any content cost bounded time and memory.
package folder
