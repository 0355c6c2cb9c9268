package transcript

import (
	"path"
	"strings"
)

// Main is the name of the main conversation's transcript. Transcripts of child agents have names
// like "subagents/NAME.jsonl", below a directory named after the agent.
const Main = ""

// Name converts the path in a mirror line of the CLI to the name under which the log records the
// transcript. ok is false if the path is not a transcript of the agent.
func Name(agentID, file string) (name string, ok bool) {
	if path.Base(file) == agentID+".jsonl" {
		return Main, true
	}
	_, below, found := strings.Cut(file, "/"+agentID+"/")
	return below, found && child(below)
}

// child reports whether a name can be a child agent's transcript. The name becomes part of a
// path, so it must not lead anywhere else.
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

// Path returns the path of a transcript; dir is the directory of the main one.
func Path(dir, agentID, name string) string {
	if name == Main {
		return path.Join(dir, agentID+".jsonl")
	}
	return path.Join(dir, agentID, name)
}

// meta returns the name of the metadata file of a child agent's transcript.
func meta(name string) string { return strings.TrimSuffix(name, ".jsonl") + ".meta.json" }
