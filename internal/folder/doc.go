// Package folder reads the files under .claude that an agent brings for its runtimes (skills,
// commands, sub-agents, output styles), and the instructions of a workspace.
//
// internal/agents reads and stages a version's folder, the engine reads a workspace's;
// the runtimes get a Folder with each turn. It imports rooted and the vocabulary. Invariants:
// only listed keys of a file's frontmatter are passed on, so that no hook, permission, server,
// model or command comes along; a file that cannot be read completely is left out, and a notice
// reports that; files of any content cost bounded time and memory.
package folder
