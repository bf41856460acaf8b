# Ends some 20 ms after its first method began.
def work
  i = 0
  i += 1 while i < 300_000
end

def main
  2.times { work }
end

main
