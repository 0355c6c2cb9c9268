package obs

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// parsed is a page of metrics: values by name and labels as they stand.
type parsed struct {
	values map[string]float64
	// kinds are by family, labels what the values of labels are.
	kinds  map[string]string
	labels []string
}

var (
	metricName = regexp.MustCompile(`^[a-zA-Z_:][a-zA-Z0-9_:]*$`)
	labelName  = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)
)

// parse reads the exposition format strictly: each family announced once, with its
// type, its samples together, no sample twice.
func parse(text string) (parsed, error) {
	out := parsed{values: map[string]float64{}, kinds: map[string]string{}}
	if !utf8.ValidString(text) || text != "" && !strings.HasSuffix(text, "\n") {
		return out, fmt.Errorf("not whole lines of UTF-8")
	}
	helped, family := "", ""
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if rest, ok := strings.CutPrefix(line, "# HELP "); ok {
			name, doc, _ := strings.Cut(rest, " ")
			if !metricName.MatchString(name) || doc == "" {
				return out, fmt.Errorf("help %q", line)
			}
			helped = name
			continue
		}
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, kind, _ := strings.Cut(rest, " ")
			if name != helped || out.kinds[name] != "" || kind != "counter" && kind != "gauge" && kind != "histogram" {
				return out, fmt.Errorf("type %q after help of %q", line, helped)
			}
			family, out.kinds[name] = name, kind
			continue
		}
		series, labels, value, err := sample(line)
		if err != nil {
			return out, err
		}
		name, _, _ := strings.Cut(series, "{")
		base := name
		if out.kinds[family] == "histogram" {
			for _, s := range []string{"_bucket", "_sum", "_count"} {
				base = strings.TrimSuffix(base, s)
			}
		}
		if _, twice := out.values[series]; twice || base != family || !metricName.MatchString(name) {
			return out, fmt.Errorf("sample %q in the family %q, or twice", line, family)
		}
		out.values[series] = value
		out.labels = append(out.labels, labels...)
	}
	return out, nil
}

// sample reads one line: the name with its labels as they stand, the values of the
// labels, the value.
func sample(line string) (series string, labels []string, value float64, err error) {
	bad := fmt.Errorf("sample %q", line)
	at := strings.IndexAny(line, "{ ")
	if at < 0 {
		return "", nil, 0, bad
	}
	if line[at] == '{' {
		at++
		for {
			eq := strings.Index(line[at:], `="`)
			if eq < 0 || !labelName.MatchString(line[at:at+eq]) {
				return "", nil, 0, bad
			}
			at += eq + 2
			var v strings.Builder
			for ; at < len(line) && line[at] != '"'; at++ {
				if line[at] != '\\' {
					v.WriteByte(line[at])
					continue
				}
				at++
				if at == len(line) || !strings.ContainsRune(`\n"`, rune(line[at])) {
					return "", nil, 0, bad
				}
				v.WriteString(map[byte]string{'\\': `\`, 'n': "\n", '"': `"`}[line[at]])
			}
			labels = append(labels, v.String())
			if at+1 >= len(line) {
				return "", nil, 0, bad
			}
			at += 2
			if line[at-1] == '}' {
				break
			}
			if line[at-1] != ',' {
				return "", nil, 0, bad
			}
		}
	}
	if at >= len(line) || line[at] != ' ' {
		return "", nil, 0, bad
	}
	value, err = strconv.ParseFloat(line[at+1:], 64)
	return line[:at], labels, value, err
}
