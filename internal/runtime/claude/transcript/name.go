package transcript

import (
	"path"
	"strings"
)

// Main is the name of the conversation's own transcript; those of child agents are
// "subagents/NAME.jsonl", below a directory named after the agent.
const Main = ""

// Name turns the path that a mirror frame gives into the name that the log keeps. Not
// ok is a path that belongs to no transcript of the agent.
func Name(agentID, file string) (name string, ok bool) {
	if path.Base(file) == agentID+".jsonl" {
		return Main, true
	}
	_, below, found := strings.Cut(file, "/"+agentID+"/")
	return below, found && child(below)
}

// child reports whether a name may be one of a child agent's transcript. It becomes
// part of a path: nothing in it leads anywhere else.
func child(name string) bool {
	rest, ok := strings.CutPrefix(name, "subagents/")
	stem, jsonl := strings.CutSuffix(rest, ".jsonl")
	if !ok || !jsonl || len(name) > 200 {
		return false
	}
	for part := range strings.SplitSeq(stem, "/") {
		if part == "" || strings.ContainsFunc(part, odd) {
			return false
		}
	}
	return true
}

func odd(r rune) bool {
	return r != '-' && r != '_' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
}

// Path is where a transcript lies, below the directory that holds the main one.
func Path(dir, agentID, name string) string {
	if name == Main {
		return path.Join(dir, agentID+".jsonl")
	}
	return path.Join(dir, agentID, name)
}

// meta is the name of what a child agent keeps beside its transcript.
func meta(name string) string { return strings.TrimSuffix(name, ".jsonl") + ".meta.json" }
