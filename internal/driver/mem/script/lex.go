package script

import "strings"

type token struct {
	op   string // an operator, "\n", or "" for a word
	word Word
	end  bool
}

type syntaxError string

func (e syntaxError) Error() string { return "syntax error: " + string(e) }

// lexer splits a script into tokens.
type lexer struct {
	src string
	pos int
	// depth is how many levels deep the lists at this position are nested.
	depth int
}

var operators = []string{"&&", "||", ">>", ">&", ";;", ";", "&", "|", ">", "<", "(", ")", "\n"}

func (l *lexer) next() (token, error) {
	for l.pos < len(l.src) {
		c := l.src[l.pos]
		switch {
		case c == ' ' || c == '\t' || c == '\r':
			l.pos++
			continue
		case c == '\\' && strings.HasPrefix(l.src[l.pos:], "\\\n"):
			l.pos += 2
			continue
		case c == '#':
			for l.pos < len(l.src) && l.src[l.pos] != '\n' {
				l.pos++
			}
			continue
		}
		break
	}
	if l.pos >= len(l.src) {
		return token{end: true}, nil
	}
	for _, op := range operators {
		if strings.HasPrefix(l.src[l.pos:], op) {
			l.pos += len(op)
			return token{op: op}, nil
		}
	}
	// A digit directly before a redirection is the descriptor that it redirects.
	if c := l.src[l.pos]; (c == '1' || c == '2') && l.pos+1 < len(l.src) && l.src[l.pos+1] == '>' {
		l.pos++
		t, err := l.next()
		t.op = string(c) + t.op
		return t, err
	}
	w, err := l.word(" \t\r\n;&|<>()")
	return token{word: w}, err
}

// word reads the parts of a word, up to one of the stop characters.
func (l *lexer) word(stop string) (Word, error) {
	var w Word
	var text strings.Builder
	flush := func() {
		if text.Len() > 0 {
			w = append(w, Part{Kind: Text, Text: text.String()})
			text.Reset()
		}
	}
	for l.pos < len(l.src) && !strings.ContainsRune(stop, rune(l.src[l.pos])) {
		switch c := l.src[l.pos]; c {
		case '\\':
			if l.pos+1 >= len(l.src) {
				return nil, syntaxError("the script ends with a backslash")
			}
			flush()
			w = append(w, Part{Kind: Text, Text: l.src[l.pos+1 : l.pos+2], Quoted: true})
			l.pos += 2
		case '\'':
			end := strings.IndexByte(l.src[l.pos+1:], '\'')
			if end < 0 {
				return nil, syntaxError("unterminated '")
			}
			flush()
			w = append(w, Part{Kind: Text, Text: l.src[l.pos+1 : l.pos+1+end], Quoted: true})
			l.pos += end + 2
		case '"':
			flush()
			l.pos++
			ps, err := l.double()
			if err != nil {
				return nil, err
			}
			w = append(w, ps...)
		case '$':
			flush()
			p, err := l.dollar()
			if err != nil {
				return nil, err
			}
			w = append(w, p)
		default:
			text.WriteByte(c)
			l.pos++
		}
	}
	flush()
	return w, nil
}

// double reads the rest of a double-quoted string.
func (l *lexer) double() (Word, error) {
	// The empty quoted part makes "" a field of its own.
	w := Word{{Kind: Text, Quoted: true}}
	var text strings.Builder
	flush := func() {
		w = append(w, Part{Kind: Text, Text: text.String(), Quoted: true})
		text.Reset()
	}
	for l.pos < len(l.src) {
		switch c := l.src[l.pos]; {
		case c == '"':
			l.pos++
			flush()
			return w, nil
		case c == '\\' && l.pos+1 < len(l.src) && strings.IndexByte("\"\\$`", l.src[l.pos+1]) >= 0:
			text.WriteByte(l.src[l.pos+1])
			l.pos += 2
		case c == '$':
			flush()
			p, err := l.dollar()
			if err != nil {
				return nil, err
			}
			p.Quoted = true
			w = append(w, p)
		default:
			text.WriteByte(c)
			l.pos++
		}
	}
	return nil, syntaxError(`unterminated "`)
}

func nameByte(c byte, first bool) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || !first && c >= '0' && c <= '9'
}

// dollar reads an expansion: $name, ${name}, $?, $$, $1, $(list) or $((sum)).
func (l *lexer) dollar() (Part, error) {
	l.pos++
	rest := l.src[l.pos:]
	switch {
	case strings.HasPrefix(rest, "(("):
		end := strings.Index(rest, "))")
		if end < 0 {
			return Part{}, syntaxError("unterminated $((")
		}
		l.pos += end + 2
		return Part{Kind: Arithmetic, Text: rest[2:end]}, nil
	case strings.HasPrefix(rest, "("):
		// Count the level here: the first word of the list, which may contain another $(, is read before list does.
		if l.depth++; l.depth > maxDepth {
			return Part{}, syntaxError("nested too deeply")
		}
		defer func() { l.depth-- }()
		l.pos++
		p := &parser{lex: l}
		p.advance()
		body, err := p.list(")")
		if err != nil {
			return Part{}, err
		}
		if p.err != nil || p.tok.op != ")" {
			return Part{}, syntaxError("unterminated $(")
		}
		return Part{Kind: Substitution, Sub: body}, nil
	case strings.HasPrefix(rest, "{"):
		end := strings.IndexByte(rest, '}')
		if end < 0 {
			return Part{}, syntaxError("unterminated ${")
		}
		name := rest[1:end]
		for i := range len(name) {
			if !nameByte(name[i], i == 0) {
				return Part{}, syntaxError("bad substitution ${" + name + "}")
			}
		}
		l.pos += end + 1
		return Part{Kind: Variable, Text: name}, nil
	case rest != "" && strings.IndexByte("?$#@!0123456789", rest[0]) >= 0:
		l.pos++
		return Part{Kind: Variable, Text: rest[:1]}, nil
	}
	n := 0
	for n < len(rest) && nameByte(rest[n], n == 0) {
		n++
	}
	if n == 0 {
		return Part{Kind: Text, Text: "$", Quoted: true}, nil
	}
	l.pos += n
	return Part{Kind: Variable, Text: rest[:n]}, nil
}
