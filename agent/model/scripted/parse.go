package scripted

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
)

// The greatest values in a script. A script with larger ones is refused.
const (
	MaxSteps  = 10_000
	MaxTools  = 128
	MaxChunks = 10_000
	MaxTimes  = 1_000_000
	MaxWait   = time.Hour
)

const (
	openTag  = "<script>"
	closeTag = "</script>"
	op       = "script"
)

// Use is a tool call that a step makes.
type Use struct {
	Tool string
	// Input is any JSON value; {} if the script names none.
	Input json.RawMessage
}

// Step is one entry of a script.
type Step struct {
	// Say is the text of the answer; nil means no text.
	Say   *string
	Tools []Use
	Think string
	// Chunks is the number of deltas in which the text is sent; 0 means 1.
	Chunks int
	// Delay is a pause before the first delta, Stall a pause in the middle of the text.
	Delay, Stall time.Duration
	Usage        *holdfast.Usage
	StopReason   string
	// Error is the class of a failure, which comes before any text or, with Late, after half of
	// it. Cut ends the stream in the middle. A failure, a cut, and the stall of a step that only stalls
	// happen Times times (default 1); after that the step is carried out without them.
	Error      string
	Late       bool
	Cut        bool
	Times      int
	RetryAfter float64
}

// Answers reports whether the step makes an answer. A step that only fails or stalls does not: it
// precedes the answer of the next step.
func (s *Step) Answers() bool {
	return s.Say != nil || s.Tools != nil || s.Error == "" && !s.Cut && s.Stall == 0
}

// faulty reports whether the step fails at first.
func (s *Step) faulty() bool {
	return s.Error != "" || s.Cut || s.Stall > 0 && !s.Answers()
}

// errorClasses lists the classes of failures that a step may have, and whether a call that failed
// with the class may be retried.
var errorClasses = map[string]bool{
	"overloaded": true, "rate_limit": true, "api": true, "invalid": false, "authentication": false,
}

// Find returns the steps of the script in a message, and whether the message has a script: a text
// between <script> and </script>. It fails with invalid, quoting the wrong part, if the script
// does not parse, or begins like a script and has no end.
func Find(text string) (steps []Step, found bool, err error) {
	_, rest, ok := strings.Cut(text, openTag)
	if !ok {
		return nil, false, nil
	}
	body := strings.TrimLeft(rest, " \t\r\n")
	if !strings.Contains(rest, closeTag) {
		if !strings.HasPrefix(body, "[") {
			return nil, false, nil
		}
		return nil, true, refuse("the script %s has no end", holdfast.Quote(body)).
			WithHint("end the script with %s", closeTag)
	}
	dec := json.NewDecoder(strings.NewReader(body))
	var raw json.RawMessage
	if err := dec.Decode(&raw); err != nil {
		return nil, true, refuse("the script %s is not JSON: %w", holdfast.Quote(cutAtTag(body)), err)
	}
	after := strings.TrimLeft(body[dec.InputOffset():], " \t\r\n")
	if !strings.HasPrefix(after, closeTag) {
		return nil, true, refuse("the script has %s after its array of steps", holdfast.Quote(cutAtTag(after)))
	}
	steps, err = Parse(raw)
	return steps, true, err
}

// Parse reads a script's JSON array. Unknown keys, wrong types and values out of
// bounds are invalid.
func Parse(data []byte) ([]Step, error) {
	var raw []json.RawMessage
	if err := json.Unmarshal(data, &raw); err != nil || raw == nil {
		return nil, refuse("the script %s is not an array of steps", holdfast.Quote(string(data))).
			WithHint(`write a script as a list of steps: [{"say": "text"}]`)
	}
	if len(raw) > MaxSteps {
		return nil, refuse("the script has %d steps, more than %d", len(raw), MaxSteps)
	}
	steps := make([]Step, len(raw))
	for i, r := range raw {
		if err := parseStep(i, r, &steps[i]); err != nil {
			return nil, err
		}
	}
	return steps, nil
}

func parseStep(i int, data json.RawMessage, s *Step) error {
	fields, err := object(data)
	if err != nil {
		return refuse("step %d of the script is %s, not an object", i, holdfast.Quote(string(data)))
	}
	s.Times = 1
	for key, val := range fields {
		if !s.set(key, val, fields) {
			if _, known := stepKeys[key]; !known {
				return refuse("step %d of the script has the unknown key %s", i, holdfast.Quote(key)).
					WithHint("use a key of a step: say, tool, input, tools, think, chunks, delay_ms, usage, error, times, retry_after, late, stop_reason, stall_ms or cut")
			}
			return refuse("in step %d of the script, %s cannot be %s", i, key, holdfast.Quote(string(val))).WithHint("%s", stepKeys[key])
		}
	}
	if s.Error != "" && s.Cut {
		return refuse("step %d of the script has both %q and %q, of which it may have one", i, "error", "cut")
	}
	return nil
}

// stepKeys has the keys of a step, each with a hint on its valid values.
var stepKeys = map[string]string{
	"say":         "say is a string",
	"tool":        "tool is a name, and tools may not stand beside it",
	"input":       "input stands beside tool",
	"tools":       `tools is [{"tool": "Bash", "input": {…}}, …] of 1 to 128`,
	"think":       "think is a string",
	"chunks":      "chunks is 1 to 10000",
	"delay_ms":    "delay_ms is 0 to 3600000",
	"stall_ms":    "stall_ms is 0 to 3600000",
	"usage":       `usage is {"input_tokens": N, "output_tokens": N, "cache_read_tokens": N, "cache_write_tokens": N}`,
	"stop_reason": "stop_reason is a string",
	"error":       "error is overloaded, rate_limit, api, invalid or authentication",
	"cut":         "cut is true or false",
	"late":        "late is true or false and stands beside error and say",
	"times":       "times is 0 to 1000000 and stands beside error, cut or stall_ms",
	"retry_after": "retry_after is seconds, 0 to 3600, and stands beside error",
}

// set sets one key of a step. It returns false if the value is not valid or the key is unknown.
func (s *Step) set(key string, val json.RawMessage, all map[string]json.RawMessage) bool {
	switch key {
	case "say":
		s.Say = new(string)
		return str(val, s.Say)
	case "tool":
		_, both := all["tools"]
		use, ok := parseUse(val, all["input"])
		s.Tools = []Use{use}
		return ok && !both
	case "input":
		_, ok := all["tool"]
		return ok
	case "tools":
		return s.setTools(val)
	case "think":
		return str(val, &s.Think)
	case "chunks":
		n, ok := integer(val, 1, MaxChunks)
		s.Chunks = int(n)
		return ok
	case "delay_ms":
		n, ok := integer(val, 0, MaxWait.Milliseconds())
		s.Delay = time.Duration(n) * time.Millisecond
		return ok
	case "stall_ms":
		n, ok := integer(val, 0, MaxWait.Milliseconds())
		s.Stall = time.Duration(n) * time.Millisecond
		return ok
	case "usage":
		return s.setUsage(val)
	case "stop_reason":
		return str(val, &s.StopReason)
	}
	return s.setFault(key, val, all)
}

func (s *Step) setFault(key string, val json.RawMessage, all map[string]json.RawMessage) bool {
	_, isError := all["error"]
	_, isCut := all["cut"]
	_, isStall := all["stall_ms"]
	switch key {
	case "error":
		_, known := errorClasses[string(bytes.Trim(val, `"`))]
		return known && str(val, &s.Error)
	case "cut":
		return boolean(val, &s.Cut)
	case "late":
		_, says := all["say"]
		return boolean(val, &s.Late) && isError && says
	case "times":
		n, ok := integer(val, 0, MaxTimes)
		s.Times = int(n)
		return ok && (isError || isCut || isStall)
	case "retry_after":
		var f *float64
		if json.Unmarshal(val, &f) != nil || f == nil || *f < 0 || *f > MaxWait.Seconds() {
			return false
		}
		s.RetryAfter = *f
		return isError
	}
	return false
}

func (s *Step) setTools(val json.RawMessage) bool {
	var list []json.RawMessage
	if json.Unmarshal(val, &list) != nil || len(list) == 0 || len(list) > MaxTools {
		return false
	}
	s.Tools = make([]Use, len(list))
	for i, raw := range list {
		fields, err := object(raw)
		if err != nil {
			return false
		}
		for k := range fields {
			if k != "tool" && k != "input" {
				return false
			}
		}
		var ok bool
		if s.Tools[i], ok = parseUse(fields["tool"], fields["input"]); !ok {
			return false
		}
	}
	return true
}

func (s *Step) setUsage(val json.RawMessage) bool {
	fields, err := object(val)
	if err != nil {
		return false
	}
	s.Usage = &holdfast.Usage{}
	for k, v := range fields {
		n, ok := integer(v, 0, 1<<40)
		switch {
		case ok && k == "input_tokens":
			s.Usage.InputTokens = n
		case ok && k == "output_tokens":
			s.Usage.OutputTokens = n
		case ok && k == "cache_read_tokens":
			s.Usage.CacheReadTokens = n
		case ok && k == "cache_write_tokens":
			s.Usage.CacheWriteTokens = n
		default:
			return false
		}
	}
	return true
}

func parseUse(name, input json.RawMessage) (Use, bool) {
	u := Use{Input: input}
	if len(u.Input) == 0 {
		u.Input = json.RawMessage("{}")
	}
	return u, str(name, &u.Tool) && u.Tool != ""
}

func object(data json.RawMessage) (map[string]json.RawMessage, error) {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, err
	}
	if m == nil {
		return nil, refuse("the value null is not an object")
	}
	return m, nil
}

func str(data json.RawMessage, to *string) bool {
	return len(data) > 0 && data[0] == '"' && json.Unmarshal(data, to) == nil
}

func boolean(data json.RawMessage, to *bool) bool {
	return string(data) != "null" && json.Unmarshal(data, to) == nil
}

func integer(data json.RawMessage, least, most int64) (int64, bool) {
	n, err := strconv.ParseInt(string(data), 10, 64)
	return n, err == nil && n >= least && n <= most
}

func cutAtTag(s string) string {
	before, _, _ := strings.Cut(s, closeTag)
	return before
}

func refuse(format string, args ...any) *holdfast.Error {
	return holdfast.Errorf(holdfast.KindInvalid, op, format, args...)
}
